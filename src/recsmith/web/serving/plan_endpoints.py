"""Operations on plans: show them, change them by hand, name, copy and delete them, download them."""

import re
from dataclasses import dataclass, replace
from urllib.parse import quote

from recsmith.analyses.one_table import table_cost
from recsmith.errors import UsageError, one_line
from recsmith.files import Given, decode, dump_json
from recsmith.plans import Plan, plan_to_raw
from recsmith.problems.space import space_words
from recsmith.reports.advice import ToldAdvice
from recsmith.reports.plans import slowest_of
from recsmith.web.report import html_of
from recsmith.web.report_data import notes_of, report_data, typically
from recsmith.web.serving import answers, requests, views
from recsmith.web.serving.asked import changed
from recsmith.web.serving.calls import Call
from recsmith.web.serving.edits import DraftChange, HandDraft, PieceMove, PlanEdit, ProblemChanges
from recsmith.web.serving.endpoints import keep_plan
from recsmith.web.serving.kept_plans import KeptPlan, now, slug
from recsmith.web.serving.pricing import HandPrice
from recsmith.web.serving.uploads import check_size
from recsmith.web.serving.views import plan_data

MOST_COMPARED = 8  # plans side by side, and ranks that an error lists


@dataclass(frozen=True)
class Attachment:
    """A file to download."""

    name: str
    kind: str
    text: str

    @property
    def disposition(self) -> str:
        """The Content-Disposition header: the name in ASCII for every browser, and as it is in UTF-8."""
        plain, ending = self.name.rpartition(".")[::2]
        return f"attachment; filename=\"{slug(plain)}.{ending}\"; filename*=UTF-8''{quote(self.name, safe='')}"


async def plan_view(call: Call) -> answers.PlanView:
    """A plan in detail."""
    found, draft = await _found(call), await call.server.work(call.session.plans.draft, call.key)
    return answers.PlanView(
        summary=views.plan_summary(call.key, found),
        notes=tuple(notes_of(found.plan)),
        typically=typically(found.plan),
        slowest=slowest_of(found.plan.cost, found.plan.cost_model),
        valid_for=space_words(found.plan.bound.space),
        devices_per_host=views.devices_per_host(found.plan.cluster),
        cluster=views.cluster_summary("", found.plan.cluster),
        constraints=found.plan.constraints,
        draft=draft,
        question=found.card.question,
        data=await call.server.work(plan_data, found.plan),
    )


async def _found(call: Call) -> KeptPlan:
    return await call.server.work(call.session.plans.get, call.key)


async def change_plan(call: Call) -> answers.PlanSummary:
    """Change a plan's name or note."""
    wanted = call.noun(requests.PlanChange)
    name = None if wanted.name is None else one_line(wanted.name).strip()
    await call.server.work(call.session.plans.change, call.key, name, wanted.note)
    return views.plan_summary(call.key, await _found(call))


async def copy_plan(call: Call) -> answers.PlanSummary:
    """Keep a copy of a plan."""
    found, wanted = await _found(call), call.noun(requests.PlanCopy)
    name = one_line(wanted.name).strip() or f"{found.name}, copy"
    card = replace(found.card, name=name, parent=call.key, origin=f"copy of {found.name}", when=now())
    return await keep_plan(call, KeptPlan(found.plan, card))


async def delete_plan(call: Call) -> None:
    """Delete a plan."""
    await call.server.work(call.session.plans.drop, call.key)


async def restore_plan(call: Call) -> answers.PlanSummary:
    """Undo a deletion."""
    plans = call.session.plans
    key = await call.server.work(plans.restore, call.key)
    return views.plan_summary(key, await call.server.work(plans.get, key))


async def keep_draft(call: Call) -> HandDraft:
    """Keep the changes by hand that are not kept as a plan yet."""
    change = call.noun(DraftChange)
    return await call.server.work(call.session.plans.keep_draft, call.key, change)


async def price_edit(call: Call) -> answers.PricedEdit:
    """What a changed plan costs."""
    plan, edit = (await _found(call)).plan, call.noun(PlanEdit)
    found = await call.server.work(_priced, call, plan, edit.moves, edit.changes)
    moved = {move.table for move in edit.moves}
    return answers.PricedEdit(
        cost=found.cost, bound_s=found.bound.of_step(found.cost), gap=found.gap, broken=found.broken,
        slowest=slowest_of(found.cost, plan.cost_model),
        overfull=tuple(device.rank for device in found.cost.overfull),
        placements=tuple(each for each in found.placements if each.table in moved),
    )  # fmt: skip


def _priced(call: Call, plan: Plan, moves: tuple[PieceMove, ...], changes: ProblemChanges | None) -> HandPrice:
    _check_change(plan, changes, call)
    return call.server.benches.of(call.key, plan, changes).price(moves)


def _check_change(plan: Plan, changes: ProblemChanges | None, call: Call) -> None:
    check_size(*changed(plan.workload, plan.cluster, changes), call.server.settings)


async def table_seconds(call: Call) -> answers.TableSeconds:
    """What each table costs the device that spends most on it."""
    plan = (await _found(call)).plan
    found = await call.server.work(lambda: call.server.benches.of(call.key, plan, None).seconds_of_tables())
    return answers.TableSeconds(seconds=found)


async def table_alone(call: Call) -> answers.TableAlone:
    """What a table costs the step, and its best other placement."""
    plan = (await _found(call)).plan
    found = await call.server.work(table_cost, plan, call.query.get("name", ""))
    return views.table_alone(found)


async def keep_edit(call: Call) -> answers.PlanSummary:
    """Keep a changed plan."""
    found, edit = await _found(call), call.noun(PlanEdit)
    plan = await call.server.work(_edited, call, found.plan, edit)
    name = edit.name or f"{found.name}, by hand"
    return await keep_plan(call, views.kept_plan(plan, name, f"{found.name}, changed by hand", parent=call.key))


def _edited(call: Call, plan: Plan, edit: PlanEdit) -> Plan:
    _check_change(plan, edit.changes, call)
    bench = call.server.benches.of(call.key, plan, edit.changes)
    found = bench.price(edit.moves)
    if found.cost.overfull:
        ranks = ", ".join(str(device.rank) for device in found.cost.overfull[:MOST_COMPARED])
        raise UsageError(
            f"the changed plan needs more memory than device {ranks} has, and no job could run it; move a shard away"
        )
    return bench.plan_of(found)


async def plan_advice(call: Call) -> ToldAdvice:
    """Which changes of a plan's job pay."""
    plan = (await _found(call)).plan
    found = await call.while_heard(call.server.searches.ask(call.session.key, {"advised": plan_to_raw(plan)}))
    return decode(ToldAdvice, found["advice"], Given.of("the advice", ""))


async def plan_file(call: Call) -> Attachment:
    """The file of a plan."""
    found = await _found(call)
    text = await call.server.work(lambda: dump_json(plan_to_raw(found.plan)))
    return Attachment(f"{_file_name(found.name)}.json", "application/json", text)


async def compare(call: Call) -> answers.SideBySide:
    """Two or more plans side by side."""
    keys = tuple(dict.fromkeys(call.query.getlist("plan")))
    if not 2 <= len(keys) <= MOST_COMPARED:
        raise UsageError(f"{len(keys)} plans cannot be compared; name between 2 and {MOST_COMPARED}")
    return await call.server.work(views.side_by_side, keys, call.session)


async def plan_report(call: Call) -> Attachment:
    """The report of a plan, alone or compared with another one."""
    found, against = await _found(call), call.query.get("against")
    other = await call.server.work(call.session.plans.get, against) if against else None
    text = await call.server.work(_report, found, other)
    return Attachment(f"{_file_name(found.name)}.html", "text/html", text)


def _file_name(name: str) -> str:
    """The name of a plan as a file name: without path separators, and without an ending."""
    return re.sub(r'[/\\:*?"<>|]+', "-", re.sub(r"\.(json|ya?ml|html)$", "", name)).strip(". -") or "plan"


def _report(found: KeptPlan, other: KeptPlan | None) -> str:
    against, name = (other.plan, other.name) if other else (None, "")
    return html_of(report_data(found.plan, found.name, against, name))
