"""Answers made from nouns: summaries and details of workloads, clusters, plans and streams."""

import re
from collections import Counter
from functools import cache
from threading import Lock

from recsmith._version import __version__
from recsmith.analyses.one_table import TableCost
from recsmith.clusters import Cluster, catalogue, named_cluster
from recsmith.errors import one_line
from recsmith.files import Raw, encode
from recsmith.plans import Placement, Plan, PlanDiff, describe_kernel, diff, inexact_tables
from recsmith.problems import constraints_from_raw
from recsmith.problems.plain_reserve import kept_estimate
from recsmith.reports.catalogue import Named, cost_models, planners
from recsmith.reports.comparisons import fewest_words, knee_words
from recsmith.reports.online import next_by_period
from recsmith.reports.plan_differences import placement_words
from recsmith.reports.sweep_files import WrittenSweep
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, Span
from recsmith.units import format_size
from recsmith.web.serving import answers
from recsmith.web.serving.kept_plans import LONGEST_NAME, KeptPlan, PlanCard, now
from recsmith.web.serving.sessions import KeptStream, KeptSweep, Session
from recsmith.web.serving.settings import Settings
from recsmith.web.serving.uploads import RunningText
from recsmith.workloads import Table, Workload, builtins, load_workload
from recsmith.workloads.data_types import DATA_TYPES
from recsmith.workloads.optimizers import OPTIMIZERS

MOST_CHANGES = 500  # tables of a difference that are listed one by one
_reading = Lock()
_NUMBERED = re.compile(r"#[0-9]+$")  # as readers number tables with equal names


def choices(settings: Settings) -> answers.Choices:
    """All choices of the page; they are read from the package once, at the first request."""
    with _reading:
        return _choices(settings)


@cache
def _choices(settings: Settings) -> answers.Choices:
    return answers.Choices(
        version=__version__,
        folder=settings.folder,
        workloads=tuple(workload_summary(name, load_workload(name)) for name in builtins()),
        clusters=tuple(cluster_summary(name, known) for name in catalogue() if (known := named_cluster(name))),
        planners=tuple(map(_choice, planners())),
        cost_models=tuple(map(_choice, cost_models())),
        sharding_types=TYPE_NAMES,
        compute_kernels=KERNEL_NAMES,
        data_types=tuple(DATA_TYPES),
        optimizers=tuple(OPTIMIZERS),
        limits=answers.LimitsOfServer(
            upload_bytes=settings.upload_bytes, most_tables=settings.most_tables, most_devices=settings.most_devices,
            longest_search_s=settings.longest_search_s, kept_plans=settings.kept_plans,
        ),
    )  # fmt: skip


def _choice(named: Named) -> answers.NamedChoice:
    return answers.NamedChoice(name=named.name, about=named.about, needs=named.needs)


def workload_summary(key: str, workload: Workload, session: Session | None = None) -> answers.WorkloadSummary:
    """A workload in figures; without a name of its own it is named after its file."""
    name = session.names.get(key) if session else None
    return answers.WorkloadSummary(
        id=key, name=workload.name or name or key, tables=len(workload.tables), weight_bytes=workload.weight_bytes,
        batch_size=workload.batch_size, optimizer=workload.optimizer,
        data_types=tuple(kind for kind, _ in Counter(table.data_type for table in workload.tables).most_common()),
        numbered=sum(1 for table in workload.tables if _NUMBERED.search(table.name)),
        assumed=session.assumed.get(key, ()) if session else (),
    )  # fmt: skip


def cluster_summary(key: str, cluster: Cluster) -> answers.ClusterSummary:
    """A cluster in figures."""
    return answers.ClusterSummary(
        id=key, name=cluster.describe(), device=cluster.device.name, hosts=cluster.hosts,
        local_world_size=cluster.local_world_size, hbm_bytes=min(cluster.hbm_per_rank),
        reserve_bytes=cluster.reserve_bytes or 0, intra_host_bandwidth=cluster.links.intra_host_bandwidth,
        inter_host_bandwidth=cluster.links.inter_host_bandwidth,
    )  # fmt: skip


def plan_summary(key: str, kept: KeptPlan) -> answers.PlanSummary:
    """A plan in figures."""
    plan, card, cost = kept.plan, kept.card, kept.plan.cost
    return answers.PlanSummary(
        id=key, name=card.name, note=card.note, origin=card.origin, parent=card.parent, unwritten=kept.unwritten,
        made=card.made, workload=plan.workload.name,
        cluster=plan.cluster.describe(), tables=len(plan.placements), devices=plan.cluster.world_size,
        batch_size=plan.workload.batch_size, planner=plan.planner, cost_model=plan.cost_model, total_s=cost.step_s,
        bound_s=plan.bound.of_step(cost), gap=plan.gap, mean_s=cost.mean_s + cost.sequences_s,
        largest_hbm_bytes=max(device.hbm_bytes for device in cost.per_device),
        hbm_capacity_bytes=min(device.hbm_capacity_bytes for device in cost.per_device),
        overfull=tuple(device.rank for device in cost.overfull), digest=plan.digest, elapsed_s=card.elapsed_s,
        iterations=card.iterations, truncated=card.truncated, notes=card.notes,
    )  # fmt: skip


def stream_summary(key: str, kept: KeptStream) -> answers.StreamSummary:
    """A stream in figures."""
    found = kept.result
    return answers.StreamSummary(
        id=key, name=kept.name, arms=len(found.rows), seeds=len({each.seed for each in found.replays}),
        chosen=found.chosen,
    )  # fmt: skip


def stream_view(key: str, kept: KeptStream) -> answers.StreamView:
    """A stream's arms in figures and curves."""
    found = kept.result
    return answers.StreamView(
        summary=stream_summary(key, kept), because=found.because, rows=found.rows,
        curves=tuple(
            answers.ArmCurve(name=row.name, points=tuple(next_by_period(found, row.name).items()))
            for row in found.rows
        ),
    )  # fmt: skip


def sweep_summary(key: str, kept: KeptSweep) -> answers.SweepSummary:
    """A sweep in figures."""
    found = kept.sweep
    said = next(iter(_knees(found)), "no two points of a series have a plan, so there is no knee")
    return answers.SweepSummary(id=key, name=kept.name, points=len(found.points), said=said)


def sweep_view(key: str, kept: KeptSweep) -> answers.SweepView:
    """A sweep's points, and its knees in words."""
    found = kept.sweep
    return answers.SweepView(
        summary=sweep_summary(key, kept), planner=found.planner, cost_model=found.cost_model, space=found.space,
        fixed=found.fixed, left=found.left, knees=_knees(found),
        fewest=tuple(fewest_words(each, found.fixed) for each in found.fewest), points=found.points,
    )  # fmt: skip


def _knees(found: WrittenSweep) -> tuple[str, ...]:
    return tuple(knee_words(each, found.fixed) for each in found.knees)


def table_alone(found: TableCost) -> answers.TableAlone:
    """What a table costs the step, with its best other placement in words."""
    best, words = found.best, None
    if best is not None:
        words = placement_words(
            Placement(
                table=found.table, sharding_type=best.sharding_type, compute_kernel=best.compute_kernel,
                ranks=best.ranks, widths=best.widths, cache=best.cache,
            )
        )  # fmt: skip
    return answers.TableAlone(
        table=found.table, step_s=found.step_s, without_s=found.without_s, other=words,
        other_s=None if best is None else best.total_s,
    )  # fmt: skip


def devices_per_host(cluster: Cluster) -> int | None:
    """Devices per host for the cluster's device, if the catalogue has it."""
    known = named_cluster(cluster.device.name) if cluster.device.name in catalogue() else None
    return known.local_world_size if known else None


def kept_plan(
    plan: Plan,
    name: str,
    origin: str,
    *,
    parent: str | None = None,
    question: Raw | None = None,
    run: Raw | None = None,
) -> KeptPlan:
    """A plan with its card. question: the request of its search. run: the event that ended it."""
    facts = {key: run[key] for key in ("elapsed_s", "iterations", "truncated")} if run else {}
    shown = one_line(name).strip() or f"{plan.workload.name or 'workload'} on {short_name(plan.cluster)}"
    card = PlanCard(
        name=shown[:LONGEST_NAME], origin=origin, parent=parent, question=question, when=now(),
        notes=tuple(run["notes"]) if run else (), **facts,
    )  # fmt: skip
    return KeptPlan(plan, card)


def running_summary(key: str, kept: RunningText) -> answers.RunningSummary:
    """A running plan in figures."""
    return answers.RunningSummary(id=key, name=str(kept.text), tables=kept.tables, devices=kept.devices)


def side_by_side(keys: tuple[str, ...], session: Session) -> answers.SideBySide:
    """Plans in figures, and what changes from the first to each of the others."""
    kept = [session.plans.get(key) for key in keys]
    pairs = zip(keys, kept, strict=True)
    return answers.SideBySide(
        plans=tuple(plan_summary(key, each) for key, each in pairs),
        settings=_unlike([_settings(each.plan) for each in kept]),
        differences=tuple(
            _difference(key, diff(kept[0].plan, each.plan)) for key, each in zip(keys[1:], kept[1:], strict=True)
        ),
    )


def _settings(plan: Plan) -> dict[str, str]:
    """The settings of a plan's request, in words."""
    space, limits = constraints_from_raw(plan.constraints, "plan")
    per_rank = {"most tables or bytes of a device": limits.per_rank} if limits.per_rank else {}
    rules = {f"rule for {rule.tables}": rule for rule in limits.rules}
    groups = {"together": limits.together, "apart": limits.apart}
    return {
        "sharding types": ", ".join(space.types), "column widths": space.widths, "kernels": ", ".join(space.kernels),
        "accounting of memory": limits.memory, "keep exact": "yes" if limits.keep_exact else "no",
        "optimizer": plan.workload.optimizer, "memory of a device": format_size(min(plan.cluster.hbm_per_rank)),
        "reserve": str(kept_estimate(plan.workload, plan.cluster) or format_size(plan.cluster.reserve_bytes or 0)),
        "planner": plan.planner, "cost model": plan.cost_model,
        **{name: ", ".join(f"{key} {value}" for key, value in encode(rule).items() if value and key != "tables")
           for name, rule in rules.items()},
        **{name: "; ".join(", ".join(each.tables) for each in some) for name, some in groups.items() if some},
        **{name: "; ".join(map(str, map(encode, some))) for name, some in per_rank.items()},
    }  # fmt: skip


def _unlike(settings: list[dict[str, str]]) -> dict[str, tuple[str, ...]]:
    """Settings in which plans differ; a dash if a plan has none."""
    names = dict.fromkeys(name for each in settings for name in each)
    found = {name: tuple(each.get(name, "-") for each in settings) for name in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def short_name(cluster: Cluster) -> str:
    """A cluster in a word, such as h100:8x2."""
    return cluster.describe().partition(",")[0]


def _difference(key: str, change: PlanDiff) -> answers.PlanDifference:
    return answers.PlanDifference(
        plan=key, changed=len(change.changes), unchanged=change.unchanged, moved_bytes=change.moved_bytes,
        other_problem=change.other_problem,
        changes=tuple(
            answers.PlacedOtherwise(
                table=each.table, before=_place(each.before), after=_place(each.after), moved_bytes=each.moved_bytes
            )
            for each in change.largest_first[:MOST_CHANGES]
        ),
    )  # fmt: skip


def _place(placement: Placement | None) -> str | None:
    if placement is None:
        return None
    ranks = ", ".join(map(str, placement.ranks[:8])) + (" ..." if len(placement.ranks) > 8 else "")
    kernel = describe_kernel(placement.compute_kernel, placement.cache)
    return f"{placement.sharding_type}, {kernel}, ranks {ranks}"


def plan_data(plan: Plan) -> Raw:
    """A plan as plain data: seconds and bytes of every device, and the tables in order of their names."""
    tables = {table.name: table for table in plan.workload.tables}
    return {
        "cost": encode(plan.cost),
        "bound": encode(plan.bound) | {"value_s": plan.bound.of_step(plan.cost)},
        "tables": [_table(tables[placement.table], placement, plan) for placement in plan.placements],
        "inexact": inexact_tables(plan),
        "batch_size": plan.workload.batch_size,
        "optimizer": plan.workload.optimizer,
        "hosts": plan.cluster.hosts,
        "local_world_size": plan.cluster.local_world_size,
    }


def _table(table: Table, placement: Placement, plan: Plan) -> Raw:
    """A table. ranks: the first of each column piece, which covers `span` of them: 1, those of a host, or all."""
    kind = placement.kind
    targets = kind.targets(placement.ranks, plan.cluster)
    span = kind.coverage(plan.cluster)
    return {
        "name": table.name,
        "rows": table.num_embeddings,
        "columns": table.embedding_dim,
        "weight_bytes": table.weight_bytes,
        "ids": plan.workload.ids_a_sample(table),
        "sharding_type": placement.sharding_type,
        "compute_kernel": placement.compute_kernel,
        "widths": list(placement.widths_of(table.embedding_dim)),
        "ranks": [target * span for target in targets],
        "span": span,
        "movable": kind.span != Span.WORLD,
        "tower": next((number for number, tower in enumerate(plan.towers) if table.name in tower), None),
    }
