"""What each operation does: from a call to an answer; operations.py says when."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsmith.clusters import Cluster, cluster_from_raw, cluster_to_raw
from recsmith.errors import UsageError
from recsmith.files import Given, Raw, decode, dump_json
from recsmith.planning.result import SearchOptions
from recsmith.plans import Plan, plan_to_raw
from recsmith.plans.files import plan_from_raw
from recsmith.problems import constraints_to_raw
from recsmith.problems.space import space_words
from recsmith.reports.advice import ToldAdvice
from recsmith.reports.plans import slowest_of
from recsmith.training.results.arms import OnlineResult
from recsmith.units import format_time
from recsmith.web.report import html_of
from recsmith.web.report_data import notes_of, report_data
from recsmith.web.serving import answers, requests, views
from recsmith.web.serving.calls import Call
from recsmith.web.serving.pricing import HandPrice
from recsmith.web.serving.searches import SearchJob
from recsmith.web.serving.sessions import KeptPlan, KeptStream, Session
from recsmith.web.serving.settings import Refused
from recsmith.web.serving.uploads import ReadUpload, check_cost_model, check_planner, check_size, read_upload
from recsmith.web.serving.views import plan_data
from recsmith.workloads import Workload, workload_to_raw
from recsmith.workloads.sample import sample_workload

MOST_COMPARED = 8  # plans side by side


@dataclass(frozen=True)
class Attachment:
    """A file to download."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class Events:
    """A stream of events."""

    listen: AsyncIterator[answers.SearchEvent | None]


# --- workloads, clusters, files -----------------------------------------------------------------------------------


async def choices(call: Call) -> answers.Choices:
    """What there is to choose from."""
    return await call.server.work(views.choices, call.server.settings)


async def kept(call: Call) -> answers.Shelves:
    """What is kept for this client."""
    session = call.session
    return answers.Shelves(
        workloads=tuple(views.workload_summary(*each, session) for each in session.workloads.things.items()),
        clusters=tuple(views.cluster_summary(*each) for each in session.clusters.things.items()),
        plans=tuple(views.plan_summary(*each) for each in session.plans.things.items()),
        streams=tuple(views.stream_summary(*each) for each in session.streams.things.items()),
    )


async def open_file(call: Call) -> answers.Opened:
    """Read a file and keep what it holds."""
    name, settings = call.query.get("name", ""), call.server.settings
    return keep_read(
        await call.server.work(read_upload, call.body, name, settings, call.number("batch_size")), call.session
    )


def keep_read(read: ReadUpload, session: Session) -> answers.Opened:
    """Keep what a file held, and say what it is."""
    held = read.held
    if isinstance(held, Workload):
        key = session.workloads.put(held)
        session.names[key] = Path(read.name).stem
        summary = views.workload_summary(key, held, session)
        return answers.Opened(kind="workload", name=read.name, workload=summary)
    if isinstance(held, Cluster):
        return answers.Opened(
            kind="cluster", name=read.name, cluster=views.cluster_summary(session.clusters.put(held), held)
        )
    if isinstance(held, Plan):
        plan = _keep(session, views.kept_plan(held, read.name, f"file {read.name}"))
        return answers.Opened(kind="plan", name=read.name, plan=plan)
    if isinstance(held, OnlineResult):
        stream = KeptStream(read.name, held)
        summary = views.stream_summary(session.streams.put(stream), stream)
        return answers.Opened(kind="stream", name=read.name, stream=summary)
    return answers.Opened(kind="constraints", name=read.name, constraints=requests.rules_of(held))


async def stream_view(call: Call) -> answers.StreamView:
    """Arms of a stream to look at."""
    return views.stream_view(call.key, call.session.streams.get(call.key))


async def sample(call: Call) -> answers.WorkloadSummary:
    """Draw a sample of tables and keep it."""
    wanted, settings = call.noun(requests.SampleRequest), call.server.settings
    if wanted.tables > settings.most_tables:
        raise Refused(413, f"{wanted.tables:,} tables are too many for this page; ask for {settings.most_tables:,}")
    changes: dict[str, Any] = {"batch_size": wanted.batch_size, "optimizer": wanted.optimizer}
    given = {name: value for name, value in changes.items() if value is not None}
    made = await call.server.work(lambda: sample_workload(wanted.tables, wanted.seed, **given))
    return views.workload_summary(call.session.workloads.put(made), made, call.session)


# --- searches -----------------------------------------------------------------------------------------------------


async def start_search(call: Call) -> answers.SearchState:
    """Start a search."""
    wanted = call.noun(requests.SearchRequest)
    problem = await call.server.work(_problem, wanted, call)
    name = wanted.name
    if not name and wanted.workload in call.session.names and not problem["workload"].get("name"):
        cluster = cluster_from_raw(problem["cluster"], "the cluster")
        name = f"{call.session.names[wanted.workload]} on {views.short_name(cluster)}"

    async def keep(event: Raw) -> answers.PlanSummary:
        plan = await call.server.work(plan_from_raw, event["plan"], "the plan that was found")
        origin = f"planner {wanted.planner}, {format_time(event['elapsed_s'])}"
        return _keep(call.session, views.kept_plan(plan, name, origin, event))

    return call.server.searches.start(call.session.key, name, problem, keep, stays=wanted.stay).state


def _problem(wanted: requests.SearchRequest, call: Call) -> Raw:
    """What the process of a search is told; UsageError where something breaks a rule."""
    settings, session = call.server.settings, call.session
    check_planner(wanted.planner)
    check_cost_model(wanted.cost_model)
    if wanted.time_limit_s is not None and not 0 < wanted.time_limit_s <= settings.longest_search_s:
        limit = f"above 0 and at most at {settings.longest_search_s:g} seconds"
        raise UsageError(f"time_limit_s is {wanted.time_limit_s:g}; it must lie {limit}")
    options = SearchOptions(
        cost_model=wanted.cost_model, seed=wanted.seed, iterations=wanted.iterations, time_limit_s=wanted.time_limit_s
    )
    _ = options.budget
    start = session.plans.get(wanted.plan).plan if wanted.plan else None
    if start is not None:
        workload, cluster = start.workload, start.cluster
        space, limits = requests.limits_of_plan(start, wanted.constraints, wanted.space)
    else:
        workload = requests.workload_of(wanted.workload or "", session)
        cluster = requests.cluster_of(wanted.cluster or "", session)
        space, limits = requests.limits_of(wanted.constraints, wanted.space)
    workload, cluster = requests.changed(workload, cluster, wanted.changes)
    check_size(workload, cluster, settings)
    limits.check_names([table.name for table in workload.tables])
    return {
        "workload": workload_to_raw(workload), "cluster": cluster_to_raw(cluster),
        "constraints": constraints_to_raw(space, limits), "planner": wanted.planner, "cost_model": wanted.cost_model,
        "seed": wanted.seed, "iterations": wanted.iterations, "time_limit_s": wanted.time_limit_s,
        "start": plan_to_raw(start) if start is not None and wanted.start else None,
    }  # fmt: skip


async def searches(call: Call) -> answers.SearchStates:
    """The client's searches."""
    return answers.SearchStates(searches=tuple(search.state for search in call.server.searches.of(call.session.key)))


async def search_state(call: Call) -> answers.SearchState:
    """Where a search is."""
    return _search(call).state


async def search_events(call: Call) -> Events:
    """The events of a search, from the first, or from behind the last one that was heard."""
    return Events(_search(call).listen(call.last_event))


async def stop_search(call: Call) -> answers.SearchState:
    """Have a search end with its best plan so far."""
    search = _search(call)
    call.server.searches.stop(search)
    return search.state


async def cancel_search(call: Call) -> answers.SearchState:
    """End a search and its process."""
    search = _search(call)
    await call.server.searches.cancel(search)
    return search.state


def _search(call: Call) -> SearchJob:
    return call.server.searches.find(call.key, call.session.key)


# --- plans --------------------------------------------------------------------------------------------------------


async def plan_view(call: Call) -> answers.PlanView:
    """A plan to look at."""
    found = call.session.plans.get(call.key)
    return answers.PlanView(
        summary=views.plan_summary(call.key, found),
        notes=tuple(notes_of(found.plan)),
        slowest=slowest_of(found.plan.cost, found.plan.cost_model),
        valid_for=space_words(found.plan.bound.space),
        devices_per_host=views.devices_per_host(found.plan.cluster),
        cluster=views.cluster_summary("", found.plan.cluster),
        constraints=found.plan.constraints,
        data=await call.server.work(plan_data, found.plan),
    )


async def delete_plan(call: Call) -> None:
    """Forget a plan."""
    call.session.plans.drop(call.key)


async def price_edit(call: Call) -> answers.PricedEdit:
    """What a changed plan costs."""
    plan, edit = call.session.plans.get(call.key).plan, call.noun(requests.PlanEdit)
    found = await call.server.work(_priced, call, plan, edit.moves, edit.changes)
    moved = {move.table for move in edit.moves}
    return answers.PricedEdit(
        cost=found.cost, bound_s=found.bound.of_step(found.cost), gap=found.gap, broken=found.broken,
        slowest=slowest_of(found.cost, plan.cost_model),
        overfull=tuple(device.rank for device in found.cost.overfull),
        placements=tuple(each for each in found.placements if each.table in moved),
    )  # fmt: skip


def _priced(
    call: Call, plan: Plan, moves: tuple[requests.PieceMove, ...], changes: requests.ProblemChanges | None
) -> HandPrice:
    _check_change(plan, changes, call)
    return call.server.benches.of(call.key, plan, changes).price(moves)


def _check_change(plan: Plan, changes: requests.ProblemChanges | None, call: Call) -> None:
    check_size(*requests.changed(plan.workload, plan.cluster, changes), call.server.settings)


async def keep_edit(call: Call) -> answers.PlanSummary:
    """Keep a changed plan."""
    found, edit = call.session.plans.get(call.key), call.noun(requests.PlanEdit)
    plan = await call.server.work(_edited, call, found.plan, edit)
    name = edit.name or f"{found.name}, by hand"
    return _keep(call.session, views.kept_plan(plan, name, f"{found.name}, changed by hand"))


def _edited(call: Call, plan: Plan, edit: requests.PlanEdit) -> Plan:
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
    """What pays beside a plan."""
    plan = call.session.plans.get(call.key).plan
    found = await call.server.searches.ask(call.session.key, {"advised": plan_to_raw(plan)})
    return decode(ToldAdvice, found["advice"], Given.of("the advice", ""))


async def plan_file(call: Call) -> Attachment:
    """The file of a plan."""
    plan = call.session.plans.get(call.key).plan
    text = await call.server.work(lambda: dump_json(plan_to_raw(plan)))
    return Attachment(f"plan-{plan.digest[:12]}.json", "application/json", text)


async def compare(call: Call) -> answers.SideBySide:
    """Plans side by side."""
    keys = tuple(dict.fromkeys(call.query.getlist("plan")))
    if not 2 <= len(keys) <= MOST_COMPARED:
        raise UsageError(f"{len(keys)} plans cannot be compared; name between 2 and {MOST_COMPARED}")
    return await call.server.work(views.side_by_side, keys, call.session)


def _keep(session: Session, plan: KeptPlan) -> answers.PlanSummary:
    return views.plan_summary(session.plans.put(plan), plan)


async def plan_report(call: Call) -> Attachment:
    """The report of a plan, alone or against another one."""
    found, against = call.session.plans.get(call.key), call.query.get("against")
    other = call.session.plans.get(against) if against else None
    text = await call.server.work(_report, found, other)
    return Attachment(f"plan-{found.plan.digest[:12]}.html", "text/html", text)


def _report(found: KeptPlan, other: KeptPlan | None) -> str:
    against, name = (other.plan, other.name) if other else (None, "")
    return html_of(report_data(found.plan, found.name, against, name))
