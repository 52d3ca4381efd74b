"""The report of a plan as a file to download."""

from recsmith.web.report import html_of
from recsmith.web.report_data import report_data
from recsmith.web.serving.calls import Call
from recsmith.web.serving.endpoints import Attachment
from recsmith.web.serving.sessions import KeptPlan


async def plan_report(call: Call) -> Attachment:
    """The report of a plan, alone or against another one."""
    found, against = call.session.plans.get(call.key), call.query.get("against")
    other = call.session.plans.get(against) if against else None
    text = await call.server.work(_report, found, other)
    return Attachment(f"plan-{found.plan.digest[:12]}.html", "text/html", text)


def _report(found: KeptPlan, other: KeptPlan | None) -> str:
    against, name = (other.plan, other.name) if other else (None, "")
    return html_of(report_data(found.plan, found.name, against, name))
