"""Plans to and from files: a plan stands alone, with its workload, cluster, constraints and price inside."""

import hashlib
import json
from dataclasses import field, replace
from typing import cast

from recsmith._types import noun
from recsmith._version import __version__
from recsmith.clusters import Cluster, cluster_from_raw, cluster_to_raw
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.files import (
    Raw,
    check_schema,
    decode,
    dump_json,
    encode,
    parse,
    read_text,
    starts_with_schema,
    write_text,
)
from recsmith.plans.check import check_placements, check_shards
from recsmith.plans.cost import Bound, StepCost
from recsmith.plans.plan import Placement, Plan
from recsmith.plans.running.dumped import is_dump
from recsmith.plans.running.printed import is_printed
from recsmith.sharding import Shard
from recsmith.workloads import Workload, workload_from_raw, workload_to_raw
from recsmith.workloads.torchrec_log import find_report, refuse_log

SCHEMA = "recsmith/plan/1"
PLAN_FILE = starts_with_schema(SCHEMA)  # what `-o` may overwrite
MOST_SHARDS = 250_000  # a file with more leaves `shards` out: they are derived, and readers could not read them


@noun
class _Body:
    """The part of a plan file that is read by its types alone."""

    placements: tuple[Placement, ...]
    constraints: Raw
    planner: str
    cost_model: str
    cost: StepCost
    bound: Bound
    gap: float | None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    digest: str = ""
    shards: tuple[Shard, ...] | None = None


def load_plan(source: str) -> Plan:
    """The plan of a file ('-' is stdin), checked: legal placements, agreeing shards, untouched digest.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is not a plan, or was changed after it was written.
        PlanMismatch: the placements cannot be run, or shards and placements disagree.
    """
    text = read_text(source)
    if find_report(text, source) is not None or is_printed(text):
        raise CorruptFile(_running_plan(source, "the log of a TorchRec job"))
    refuse_log(text, source, "schema|plan")
    raw = parse(text, source)
    if is_dump(raw):
        raise CorruptFile(_running_plan(source, "a dumped ShardingPlan"))
    return plan_from_raw(raw, source)


def _running_plan(source: str, form: str) -> str:
    return (
        f"'{source}' is {form}, not a plan of RecSmith, which names tables, batch and cluster too; make one with "
        "`recsmith import`, or recsmith.price(workload, cluster, file)"
    )


def save_plan(plan: Plan, target: str) -> None:
    """Write the plan's file, whole or not at all."""
    write_text(target, dump_json(plan_to_raw(plan)))


def plan_to_raw(plan: Plan) -> Raw:
    """Plain data of a plan, shards included."""
    return {
        "schema": SCHEMA,
        "digest": plan.digest,
        "planner": plan.planner,
        "cost_model": plan.cost_model,
        "gap": plan.gap,
        **({"extrapolated": plan.extrapolated} if plan.extrapolated else {}),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "versions": {"recsmith": __version__},
        "constraints": plan.constraints,
        "cluster": cluster_to_raw(plan.cluster),
        "workload": workload_to_raw(plan.workload),
        "placements": [encode_placement(placement) for placement in plan.placements],
        "cost": encode(plan.cost),
        **({"shards": _shards_to_raw(plan)} if _count_shards(plan) <= MOST_SHARDS else {}),
    }


def _count_shards(plan: Plan) -> int:
    return sum(len(placement.ranks) for placement in plan.placements)


def _shards_to_raw(plan: Plan) -> list[Raw]:
    return [
        {"table": shard.table, "rank": shard.rank, "rows": list(shard.rows), "columns": list(shard.columns)}
        for shard in plan.shards()
    ]


def encode_placement(placement: Placement) -> Raw:
    """Plain data of a placement; faster than the general way, since there are as many as tables."""
    raw: Raw = {
        "table": placement.table,
        "sharding_type": placement.sharding_type,
        "compute_kernel": placement.compute_kernel,
        "ranks": list(placement.ranks),
    }
    if placement.widths:
        raw["widths"] = list(placement.widths)
    if placement.cache:
        raw["cache"] = encode(placement.cache)
    return raw


def digest_of(workload: Workload, cluster: Cluster, constraints: Raw, placements: tuple[Placement, ...]) -> str:
    """SHA-256 of what a job relies on; the same for any order of the tables."""
    tables = workload_to_raw(sorted_by_name(workload))
    block = [tables, cluster_to_raw(cluster), constraints, [encode_placement(placement) for placement in placements]]
    return hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest()


def sorted_by_name(workload: Workload) -> Workload:
    """The workload with its tables in order of their names, as plans keep it."""
    return replace(workload, tables=tuple(sorted(workload.tables, key=lambda table: table.name)))


def plan_from_raw(raw: Raw, source: str) -> Plan:
    """A plan from plain data of schema recsmith/plan/1, checked."""
    body = check_schema(raw, SCHEMA, source)
    missing = [key for key in ("workload", "cluster", "placements", "cost", "bound", "constraints") if key not in body]
    if missing:
        raise CorruptFile(f"'{source}' is a plan without `{missing[0]}`; plan again")
    workload = workload_from_raw(cast(Raw, body.pop("workload")), source)
    cluster = cluster_from_raw(cast(Raw, body.pop("cluster")), source)
    body.pop("versions", None)
    rest = decode(_Body, body, source)
    plan = Plan(
        workload=workload, cluster=cluster, placements=rest.placements, constraints=rest.constraints,
        planner=rest.planner, cost_model=rest.cost_model, cost=rest.cost, bound=rest.bound, gap=rest.gap,
        extrapolated=rest.extrapolated, digest=rest.digest,
    )  # fmt: skip
    try:
        check_placements(plan.placements, workload, cluster)
        if rest.shards is not None:
            check_shards(rest.shards, plan.shards(), workload.tables)
    except PlanMismatch as error:
        raise PlanMismatch(f"'{source}': {error}") from None
    digest = digest_of(workload, cluster, plan.constraints, plan.placements)
    if plan.digest not in ("", digest):
        raise CorruptFile(
            f"'{source}' was changed after it was written; plan again, or delete `digest` to accept the change"
        )
    return replace(plan, digest=digest)
