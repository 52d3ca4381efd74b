"""Reads and writes plan files; each is self-contained, with workload, cluster, constraints and price."""

import hashlib
import json
from dataclasses import field, fields, replace
from functools import cache
from typing import cast

from recsmith import files
from recsmith._types import noun, unchecked
from recsmith._version import __version__
from recsmith.clusters import Cluster, cluster_from_raw, cluster_to_raw
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.files import Raw, Source, decode, encode
from recsmith.plans.check import check_placements, check_shards
from recsmith.plans.dumped import is_dump
from recsmith.plans.plan import Bound, PlacedTables, Placement, Plan, StepCost, shards_of, wrong_price
from recsmith.plans.predicted_error import PublishedError
from recsmith.plans.printed import is_printed
from recsmith.plans.rank_runs import runs_of, without_runs
from recsmith.plans.towers import check_towers
from recsmith.sharding import Shard
from recsmith.workloads import Workload, workload_from_raw, workload_to_raw
from recsmith.workloads.torchrec_log import find_report, refuse_log

# keys that a plan written by hand may leave out
PRICE = ("planner", "cost_model", "constraints", "cost", "bound", "gap")
SCHEMA = "recsmith/plan/1"
_RANKS = "\0"  # placeholder for the ranks of a placement, whose JSON text is made once for equal ranks
PLAN_FILE = files.starts_with_schema(SCHEMA)  # what `-o` may overwrite: files that begin with this schema
MOST_SHARDS = 250_000  # a file of more shards has ranks as runs and leaves out `shards`, which are derived


@noun
class PricedBody:
    """The fields of a priced plan file that are decoded by their types alone."""

    placements: tuple[Placement, ...]
    constraints: Raw
    planner: str
    cost_model: str
    cost: StepCost
    bound: Bound
    gap: float | None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    error: PublishedError | None = None
    towers: tuple[tuple[str, ...], ...] = ()
    digest: str = ""
    shards: tuple[Shard, ...] | None = None


@noun
class Body:
    """The fields of a plan file without a price, or with an incomplete one, which is then computed again."""

    placements: tuple[Placement, ...]
    constraints: Raw | None = None
    planner: str = ""
    cost_model: str | None = None
    cost: StepCost | None = None
    bound: Bound | None = None
    gap: float | None = None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    error: PublishedError | None = None
    towers: tuple[tuple[str, ...], ...] = ()
    digest: str = ""
    shards: tuple[Shard, ...] | None = None


def load_plan(source: Plan | Source) -> Plan:
    """The plan in a file ('-' is stdin), checked: legal placements, agreeing shards, unchanged digest.

    A Plan is returned as it is.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: the file is not a plan, or was changed after it was written.
        PlanMismatch: the placements cannot be run, or shards and placements disagree.
    """
    return source if isinstance(source, Plan) else _priced(placed_from_raw(_raw_of(source), str(source)), source)


def load_placed(source: Plan | Source) -> Plan | PlacedTables:
    """The plan in a file, or only its placed tables if the file's cost may be out of date: no price, or no digest.

    Files written or edited by hand are such, because the digest is then removed. Raises what `load_plan` raises.
    """
    if isinstance(source, Plan):
        return source
    raw = _raw_of(source)
    found = placed_from_raw(raw, str(source))
    return _unpriced(found) if isinstance(found, Plan) and not raw.get("digest") else found


def _unpriced(plan: Plan) -> PlacedTables:
    """The placed tables of an edited plan, without its cost, which is of the plan before the edit."""
    return PlacedTables(
        workload=plan.workload, cluster=plan.cluster, constraints=plan.constraints, placements=plan.placements,
        cost_model=plan.cost_model, missing="digest",
    )  # fmt: skip


def _raw_of(source: Source) -> Raw:
    source = files.source_text(source, "a Plan")
    text = files.read_text(source)
    if find_report(text, source) is not None or is_printed(text):
        raise CorruptFile(_running_plan(source, "the log of a TorchRec job"))
    refuse_log(text, source, "schema|plan")
    raw = files.parse(text, source)
    if is_dump(raw):
        raise CorruptFile(_running_plan(source, "a dumped ShardingPlan"))
    return raw


def _running_plan(source: str, form: str) -> str:
    return (
        f"'{source}' is {form}, not a plan of RecSmith, which names tables, batch and cluster too; make one with "
        "`recsmith import`, or recsmith.price(workload, cluster, file)"
    )


def save_plan(plan: Plan, target: Source) -> None:
    """Write a plan file, completely or not at all."""
    files.write_text(files.source_text(target, "an output"), files.dump_json(plan_to_raw(plan)))


def plan_to_raw(plan: Plan) -> Raw:
    """Plain data of a plan, including shards."""
    return {
        "schema": SCHEMA,
        "digest": plan.digest,
        "planner": plan.planner,
        "cost_model": plan.cost_model,
        "gap": plan.gap,
        **({"extrapolated": plan.extrapolated} if plan.extrapolated else {}),
        **({} if plan.error is None else {"error": encode(plan.error)}),
        **({"towers": [list(tower) for tower in plan.towers]} if plan.towers else {}),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "versions": {"recsmith": __version__},
        "constraints": plan.constraints,
        "cluster": cluster_to_raw(plan.cluster),
        "workload": workload_to_raw(plan.workload),
        **_places_to_raw(plan),
    }


def _places_to_raw(plan: Plan) -> Raw:
    """Placements, cost and shards; if there are many shards, ranks as runs and no shards."""
    if sum(len(placement.ranks) for placement in plan.placements) > MOST_SHARDS:
        runs = cache(runs_of)
        placed = [encode_placement(each, runs(each.ranks)) for each in plan.placements]
        return {"placements": placed, "cost": encode(plan.cost)}
    placements, cost = [encode_placement(each) for each in plan.placements], encode(plan.cost)
    shards = [
        {"table": shard.table, "rank": shard.rank, "rows": list(shard.rows), "columns": list(shard.columns)}
        for shard in plan.shards()
    ]
    return {"placements": placements, "cost": cost, "shards": shards}


def encode_placement(placement: Placement, runs: str = "") -> Raw:
    """Plain data of a placement; quicker than `encode`, as there is one per table. runs: its ranks as runs, or ''."""
    raw: Raw = {
        "table": placement.table,
        "sharding_type": placement.sharding_type,
        "compute_kernel": placement.compute_kernel,
        "ranks": runs or list(placement.ranks),
    }
    if placement.widths:
        raw["widths"] = list(placement.widths)
    if placement.cache:
        raw["cache"] = encode(placement.cache)
    if placement.stash:
        raw["stash"] = placement.stash
    return raw


def digest_of(workload: Workload, cluster: Cluster, constraints: Raw, placements: tuple[Placement, ...]) -> str:
    """SHA-256 of the plan data that a job depends on; independent of the order of tables."""
    tables, ranks = workload_to_raw(sorted_by_name(workload)), cache(_listed)
    block = json.dumps([tables, cluster_to_raw(cluster), constraints], sort_keys=True)
    made = hashlib.sha256(f"{block[:-1]}, [".encode())
    for number, placement in enumerate(placements):
        raw = json.dumps(encode_placement(placement, _RANKS), sort_keys=True)
        text = raw.replace(json.dumps(_RANKS), ranks(placement.ranks), 1)
        made.update(f"{', ' * (number > 0)}{text}".encode())
    made.update(b"]]")
    return made.hexdigest()


def _listed(ranks: tuple[int, ...]) -> str:
    return json.dumps(list(ranks))


def workload_digest(workload: Workload) -> str:
    """SHA-256 that identifies a workload; independent of the order of tables."""
    return hashlib.sha256(json.dumps(workload_to_raw(sorted_by_name(workload)), sort_keys=True).encode()).hexdigest()


def sorted_by_name(workload: Workload) -> Workload:
    """The workload with its tables sorted by name, as plans store it."""
    return replace(workload, tables=tuple(sorted(workload.tables, key=lambda table: table.name)))


def plan_from_raw(raw: Raw, source: str) -> Plan:
    """A plan from plain data of schema recsmith/plan/1, checked."""
    return _priced(placed_from_raw(raw, source), source)


def _priced(found: Plan | PlacedTables, source: Plan | Source) -> Plan:
    if isinstance(found, Plan):
        return found
    raise CorruptFile(
        f"'{source}' is a plan without a price: `{found.missing}` is missing; recsmith.simulate(file) and "
        "`recsmith simulate` price it, `recsmith import` writes it with its price"
    )


def placed_from_raw(raw: Raw, source: str) -> Plan | PlacedTables:
    """A plan from plain data, checked; only its placed tables if part of the price is missing."""
    body = files.check_schema(raw, SCHEMA, source)
    missing = [key for key in ("workload", "cluster", "placements") if key not in body]
    if missing:
        raise CorruptFile(f"'{source}' is a plan without `{missing[0]}`; plan again")
    workload = workload_from_raw(cast(Raw, body.pop("workload")), source)
    cluster = cluster_from_raw(cast(Raw, body.pop("cluster")), source)
    body.pop("versions", None)
    unpriced = next((key for key in PRICE if key not in body), None)
    body["placements"], ranks = without_runs(body["placements"], source)
    rest = decode(Body if unpriced else PricedBody, body, source)
    if ranks:
        placed = enumerate(rest.placements)
        rest = replace(rest, placements=tuple(_with_ranks(each, ranks.get(i, each.ranks)) for i, each in placed))
    digest = _check(rest, workload, cluster, source)
    if not isinstance(rest, PricedBody):
        return PlacedTables(
            workload=workload, cluster=cluster, constraints=rest.constraints, placements=rest.placements,
            cost_model=rest.cost_model, missing=unpriced or "",
        )  # fmt: skip
    return Plan(
        workload=workload, cluster=cluster, placements=rest.placements, constraints=rest.constraints or {},
        planner=rest.planner, cost_model=rest.cost_model, cost=rest.cost, bound=rest.bound, gap=rest.gap,
        extrapolated=rest.extrapolated, error=rest.error, towers=rest.towers,
        digest=digest,
    )  # fmt: skip


def _with_ranks(placement: Placement, ranks: tuple[int, ...]) -> Placement:
    """The same placement with other ranks, unchecked: there may be thousands of ranks and of tables."""
    kept = {each.name: getattr(placement, each.name) for each in fields(placement)}
    return unchecked(Placement, **kept | {"ranks": ranks})


def _check(body: Body | PricedBody, workload: Workload, cluster: Cluster, source: str) -> str:
    """The digest, after refusing placements that cannot be run, shards that do not match, and another digest."""
    try:
        check_placements(body.placements, workload, cluster)
        check_towers(body.towers, body.placements, cluster)
        if body.shards is not None:
            check_shards(body.shards, shards_of(body.placements, workload, cluster), workload.tables)
    except PlanMismatch as error:
        raise PlanMismatch(f"'{source}': {error}") from None
    if isinstance(body, PricedBody) and len(body.cost.per_device) != cluster.world_size:
        count = len(body.cost.per_device)
        raise CorruptFile(
            f"'{source}': the cost is of {count} devices, the cluster has {cluster.world_size}; plan again"
        )
    if isinstance(body, PricedBody) and (wrong := wrong_price(body.cost, body.bound, body.gap)):
        raise CorruptFile(
            f"'{source}' was changed after it was written: {wrong}; plan again, or delete `cost`, `bound` and `gap` "
            "and have it priced by `recsmith simulate`"
        )
    digest = digest_of(workload, cluster, body.constraints or {}, body.placements)
    if body.digest not in ("", digest):
        raise CorruptFile(
            f"'{source}' was changed after it was written; plan again, or delete `digest` to accept the change"
        )
    return digest
