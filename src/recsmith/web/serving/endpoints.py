"""Operations on files, workloads and searches: from a call to an answer. operations.py says which route calls which."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsmith.clusters import Cluster, cluster_from_raw, cluster_to_raw
from recsmith.errors import UsageError
from recsmith.files import Raw, did_you_mean, spell_out
from recsmith.planning.result import SearchOptions
from recsmith.planning.simulate import price
from recsmith.plans import Plan, plan_to_raw
from recsmith.plans.files import plan_from_raw
from recsmith.problems import constraints_to_raw
from recsmith.reports.sweep_files import WrittenSweep
from recsmith.training.results.arms import OnlineResult
from recsmith.units import format_time
from recsmith.web.serving import answers, asked, requests, views
from recsmith.web.serving.calls import Call
from recsmith.web.serving.kept_plans import KeptPlan
from recsmith.web.serving.searches import SearchJob
from recsmith.web.serving.sessions import KeptStream, KeptSweep, Session
from recsmith.web.serving.settings import Refused
from recsmith.web.serving.uploads import (
    ReadUpload,
    RunningText,
    check_cost_model,
    check_planner,
    check_size,
    read_upload,
)
from recsmith.workloads import Workload, load_workload, workload_to_raw
from recsmith.workloads.data_types import DATA_TYPES
from recsmith.workloads.sample import sample_workload

NOT_ASKED = ("name", "stay")  # fields of a search request that do not affect its plan


@dataclass(frozen=True)
class Events:
    """A stream of events, which is sent as server-sent events."""

    listen: AsyncIterator[answers.SearchEvent | None]


# --- workloads, clusters, files -----------------------------------------------------------------------------------


async def choices(call: Call) -> answers.Choices:
    """All choices of the page, and whether this session may change anything."""
    found = await call.server.work(views.choices, call.server.settings)
    return replace(found, read_only=call.session.reads)


async def kept(call: Call) -> answers.Shelves:
    """Everything that is kept for this client."""
    session = call.session
    found = await call.server.work(session.plans.listing)
    runs = await call.server.work(call.server.runs.summaries)
    return answers.Shelves(
        workloads=tuple(views.workload_summary(*each, session) for each in session.workloads.things.items()),
        clusters=tuple(views.cluster_summary(*each) for each in session.clusters.things.items()),
        plans=found.plans, deleted=found.deleted, unread=found.unread,
        streams=tuple(views.stream_summary(*each) for each in session.streams.things.items()),
        sweeps=tuple(views.sweep_summary(*each) for each in session.sweeps.things.items()), runs=runs,
    )  # fmt: skip


async def open_file(call: Call) -> answers.Opened:
    """Read a file and keep what it holds."""
    name, settings, batch = call.query.get("name", ""), call.server.settings, call.number("batch_size")
    assume = call.query.get("assume", "") == "true"
    read = await call.server.work(lambda: read_upload(call.body, name, settings, batch, assume=assume))
    if isinstance(read.held, Plan):
        summary = await keep_plan(call, plan_of_file(read))
        return answers.Opened(kind="plan", name=read.name, notes=read.notes, plan=summary)
    return keep_read(read, call.session)


def plan_of_file(read: ReadUpload) -> KeptPlan:
    """The plan that a file held, with its card."""
    assert isinstance(read.held, Plan)
    return views.kept_plan(read.held, read.name, f"file {read.name}")


async def keep_plan(call: Call, kept: KeptPlan) -> answers.PlanSummary:
    """Keep a plan, and return its summary."""

    def put() -> answers.PlanSummary:
        plans = call.session.plans
        key = plans.put(kept)
        return views.plan_summary(key, plans.get(key))

    return await call.server.work(put)


def keep_read(read: ReadUpload, session: Session) -> answers.Opened:
    """Keep what a file held for a client, and return its summary."""
    held = read.held
    running = read.running if isinstance(read.running, RunningText) else held if isinstance(held, RunningText) else None
    opened = answers.Opened(
        kind="running", name=read.name, notes=read.notes,
        running=views.running_summary(session.running.put(running), running) if running else None,
    )  # fmt: skip
    if isinstance(held, Workload):
        key = session.workloads.put(held)
        session.names[key], session.assumed[key] = Path(read.name).stem, read.assumed
        return replace(opened, kind="workload", workload=views.workload_summary(key, held, session))
    if isinstance(held, Cluster):
        return replace(opened, kind="cluster", cluster=views.cluster_summary(session.clusters.put(held), held))
    if isinstance(held, OnlineResult):
        stream = KeptStream(read.name, held)
        return replace(opened, kind="stream", stream=views.stream_summary(session.streams.put(stream), stream))
    if isinstance(held, WrittenSweep):
        sweep = KeptSweep(read.name, held)
        return replace(opened, kind="sweep", sweep=views.sweep_summary(session.sweeps.put(sweep), sweep))
    if isinstance(held, Plan):
        kept_ = plan_of_file(read)
        return replace(opened, kind="plan", plan=views.plan_summary(session.plans.put(kept_), kept_))
    if isinstance(held, RunningText):
        return opened
    return replace(opened, kind="constraints", constraints=asked.rules_of(held))


async def change_workload(call: Call) -> answers.WorkloadSummary:
    """Set fields that a file did not state about its tables."""
    session, wanted = call.session, call.noun(requests.AssumedChange)
    found = load_workload(session.workloads.get(call.key), batch_size=wanted.batch_size, optimizer=wanted.optimizer)
    if wanted.data_type is not None:
        if wanted.data_type not in DATA_TYPES:
            hint = did_you_mean(wanted.data_type, list(DATA_TYPES))
            raise UsageError(f"no data type is called '{wanted.data_type[:60]}'{hint}")
        found = replace(found, tables=tuple(replace(each, data_type=wanted.data_type) for each in found.tables))
    session.workloads.keep(call.key, found)
    return views.workload_summary(call.key, found, session)


async def price_running(call: Call) -> answers.PlanSummary:
    """Price the plan that a job runs, and keep it."""
    session, wanted = call.session, call.noun(requests.RunningOn)
    text = session.running.get(call.key).text
    workload = asked.workload_of(wanted.workload, session)
    cluster = asked.cluster_of(wanted.cluster, session)
    check_size(workload, cluster, call.server.settings)
    plan = await call.server.work(price, workload, cluster, text)
    return await keep_plan(call, views.kept_plan(plan, f"{Path(text).stem}, running", f"running plan of {text}"))


async def sweep_view(call: Call) -> answers.SweepView:
    """A sweep in detail."""
    return views.sweep_view(call.key, call.session.sweeps.get(call.key))


async def run_view(call: Call) -> answers.RunView:
    """A training run in detail."""
    return await call.server.work(call.server.runs.view, call.key)


async def stream_view(call: Call) -> answers.StreamView:
    """The arms of a stream in detail."""
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

    asked = {word: value for word, value in spell_out(wanted).items() if value is not None and word not in NOT_ASKED}
    question = asked | ({"workload": problem["workload"].get("name") or name} if wanted.workload else {})

    async def keep(event: Raw) -> answers.PlanSummary:
        plan = await call.server.work(plan_from_raw, event["plan"], "the plan that was found")
        origin = f"planner {wanted.planner}, {format_time(event['elapsed_s'])}"
        made = views.kept_plan(plan, name, origin, parent=wanted.plan, question=question, run=event)
        return await keep_plan(call, made)

    return call.server.searches.start(call.session.key, name, problem, keep, stays=wanted.stay).state


def _problem(wanted: requests.SearchRequest, call: Call) -> Raw:
    """The problem that the process of a search receives; UsageError if something breaks a rule."""
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
        space, limits = asked.limits_of_plan(start, wanted.constraints, wanted.space)
    else:
        workload = asked.workload_of(wanted.workload or "", session)
        cluster = asked.cluster_of(wanted.cluster or "", session)
        space, limits = asked.limits_of(wanted.constraints, wanted.space)
    workload, cluster = asked.changed(workload, cluster, wanted.changes)
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
    """The present state of a search."""
    return _search(call).state


async def search_events(call: Call) -> Events:
    """The events of a search, from the first, or after the last one that the client received."""
    return Events(_search(call).listen(call.last_event))


async def stop_search(call: Call) -> answers.SearchState:
    """Ask a search to end with its best plan so far."""
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
