"""The report of a plan as a file to download."""

from recsmith.web.serving.calls import Call
from recsmith.web.serving.endpoints import Attachment
from recsmith.web.serving.refusals import Refused


async def plan_report_file(call: Call) -> Attachment:
    """The report of a plan, alone or against another one."""
    session = call.session
    plan = session.plans.get(call.key).plan
    against = call.query.get("against")
    other = session.plans.get(against).plan if against else None
    raise Refused(404, "no report yet")
