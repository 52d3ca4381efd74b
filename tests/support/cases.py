"""Random cases, slow sums from shards, and a brute force that knows every plan of a small space.

Generators draw through `pick(options)`: `seeded(seed)` is a numpy one, `drawn(make, ...)` a hypothesis strategy.
Nothing here asks a planner or a bound. What a shard costs and weighs alone comes from `Evaluator.terms` and from
`sharding.memory`, which have tests of their own; every sum, search and proof is done again, slowly.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from hypothesis import strategies as st

from recsmith.clusters import Cluster, Device, Disk, Links
from recsmith.costs import Evaluator
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import PlanMismatch, UsageError
from recsmith.planning import Result, plan
from recsmith.plans import Placement, Plan, check_placements
from recsmith.plans.plan import Cache
from recsmith.problems import Constraints, Problem, Space, TableRule, build_problem, bytes_beneath
from recsmith.problems.constraints import RulesByTable
from recsmith.problems.shared_caches import PREFETCHING
from recsmith.sharding import (
    CACHED_KERNELS,
    KERNEL_NAMES,
    KEY_VALUE,
    SHARDING_TYPES,
    TYPE_NAMES,
    UVM_CACHING,
    Shard,
    Span,
)
from recsmith.sharding.kernel_limits import VARYING_OPTIMIZERS, KernelLimits
from recsmith.sharding.memory import ACCOUNTINGS, Pieces
from recsmith.sharding.on_disk import ON_DISK
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.reuse import DEFAULT_ZIPF

Pick = Callable[[Sequence[Any]], Any]

TIGHT = (
    0.8,
    0.95,
    1.0,
    1.01,
    1.05,
    1.1,
    1.2,
    1.35,
    1.5,
    2.0,
    5.0,
    50.0,
)  # capacity of all devices over the tables' bytes
LOOSE = (1.5, 3.0, 50.0)
OFF_DISK = tuple(name for name in KERNEL_NAMES if name != KEY_VALUE.name)
MOST_PLANS = 150_000  # of one brute force
BOTH = ("analytic", "torchrec")  # models of unlike rules; `fitted` is the first with other seconds


@dataclass(frozen=True)
class Case:
    """A question for a planner."""

    workload: Workload
    cluster: Cluster
    space: Space = Space()
    constraints: Constraints = Constraints()
    cost_model: str = "torchrec"

    @cached_property
    def known(self) -> dict[Any, Any]:
        """What was computed already, by arguments."""
        return {}

    @cached_property
    def problem(self) -> Problem:
        """With every mode of the space, also those that searches leave out."""
        return build_problem(self.workload, self.cluster, self.space, self.constraints, needless=True)

    @cached_property
    def evaluator(self) -> Evaluator:
        return find_cost_model(self.cost_model).compile(self.problem)

    def plan(self, planner: str = "auto", **words: Any) -> Result:
        return plan(
            self.workload, self.cluster, planner=planner, cost_model=self.cost_model,
            space=self.space, constraints=self.constraints, **words,
        )  # fmt: skip


def seeded(seed: int) -> Pick:
    """Draws from options with numpy."""
    rng = np.random.default_rng(seed)
    return lambda options: options[int(rng.integers(len(options)))]


def drawn(make: Callable[..., Any], **words: Any) -> st.SearchStrategy[Any]:
    """A hypothesis strategy of what `make(pick, ...)` makes."""

    @st.composite
    def strategy(draw: Any) -> Any:
        return make(lambda options: draw(st.sampled_from(options)), **words)

    return strategy()


# --- nouns by hand ------------------------------------------------------------------------------------------------


def table(name: str, rows: int, dim: int, pooling_factor: float = 2.0, **fields: Any) -> Table:
    """A table with one feature of its name."""
    features = (Feature(name=name, pooling_factor=pooling_factor),)
    return Table(name=name, num_embeddings=rows, embedding_dim=dim, features=features, **fields)


def workload(*tables: Table, batch_size: int = 8, optimizer: Any = "rowwise_adagrad", **fields: Any) -> Workload:
    return Workload(batch_size=batch_size, optimizer=optimizer, tables=tables, **fields)


def cluster(local: int = 2, hosts: int = 1, hbm: int | tuple[int, ...] = 2**40, **fields: Any) -> Cluster:
    """Devices with a thin link between hosts."""
    device = Device(name="test", hbm_bytes=2**40, hbm_bandwidth=1e12, host_link_bandwidth=2e10)
    links = Links(intra_host_bandwidth=3e11, inter_host_bandwidth=2e10)
    return Cluster(device=device, local_world_size=local, hosts=hosts, links=links, hbm_bytes=hbm, **fields)


# --- random nouns -------------------------------------------------------------------------------------------------


def make_table(pick: Pick, name: str, dims: Sequence[int], rows: Sequence[int]) -> Table:
    """A table; sequence tables are rare, and may share a collection though their dims differ."""
    dim, pooling = pick(dims), pick(("sum",) * 6 + ("mean", "none", "none"))
    weighted, twice = pick((False,) * 5 + (True,)), pick((False,) * 4 + (True,))
    names = (name, f"{name}+") if twice else (name,)
    features = tuple(
        Feature(
            name=feature, pooling_factor=pick((0.0, 0.3, 1.0, 1.0, 3.0, 20.0)), num_poolings=pick((1.0, 1.0, 2.5)),
            weighted=weighted, batch_size=pick((None, None, None, 3)),
        )
        for feature in names
    )  # fmt: skip
    return Table(
        name=name, num_embeddings=pick(rows), embedding_dim=dim, features=features, pooling=pooling,
        data_type=pick(("fp32", "fp32", "fp16", "fp16", "fp32")),
        collection=pick(("", "", "tower")),
    )  # fmt: skip


def make_workload(
    pick: Pick, count: int, dims: Sequence[int], rows: Sequence[int] = (1, 7, 30, 101, 101, 1000, 5000)
) -> Workload:
    """Tables and a batch; some tables are twins that differ only in name."""
    tables = [make_table(pick, f"t{i}", dims, rows) for i in range(count)]
    twins = [replace(tables[0], name=t.name) if pick((False,) * 4 + (True,)) else t for t in tables]
    made = Workload(
        batch_size=pick((1, 4, 16)), tables=tuple(twins),
        pipeline=pick(("none", "sparse_dist", "prefetch_sparse_dist")),
        optimizer=pick(("sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb")),
        comm_dtype=pick((None, None, "fp16", "fp32")),
    )  # fmt: skip
    return replace(made, tables=tuple(_trained(made.optimizer, t) for t in made.tables))


def _trained(optimizer: str, t: Table) -> Table:
    """The table as FBGEMM's kernels on CUDA train it under the optimizer (sharding/kernel_limits.py)."""
    kind = "fp32" if optimizer == "adam" else t.data_type
    varying = optimizer in VARYING_OPTIMIZERS
    features = t.features if varying else tuple(replace(feature, batch_size=None) for feature in t.features)
    return replace(t, data_type=kind, features=features)


def make_space(pick: Pick) -> Space:
    """Every kind of space, the whole one most often."""
    some = tuple(name for name in TYPE_NAMES if pick((True, False))) or ("table_wise",)
    kernels = pick((("fused", "dense"),) * 4 + (("fused",), ("fused", "fused_uvm"), OFF_DISK))
    made = Space(types=pick((TYPE_NAMES, some)), widths=pick(("any", "any", "torchrec")), kernels=kernels)
    return replace(made, cache_factors=pick(((0.2,), (0.1, 0.7)))) if UVM_CACHING.name in kernels else made


def make_constraints(pick: Pick, names: Sequence[str]) -> Constraints:
    """Both accountings; sometimes a rule for one table, sometimes one for all."""
    rules: list[TableRule] = []
    if pick((False,) * 3 + (True,)):
        types = pick(
            (None, ("column_wise", "table_wise"), ("row_wise", "table_wise"), ("data_parallel", "column_wise"))
        )
        rules.append(TableRule(tables=pick(names), sharding_types=types, min_width=pick((None, 4, 8))))
    if pick((False,) * 5 + (True,)):
        rules.append(TableRule(tables="t*", min_width=pick((6, 8))))
    return Constraints(memory=pick(("real", "real", "torchrec")), rules=tuple(rules))


def make_case(
    pick: Pick, *, counts: Sequence[int], dims: Sequence[int], shapes: Sequence[tuple[int, int]],
    tightness: Sequence[float] = TIGHT,
) -> Case:  # fmt: skip
    """A case; its capacity is a random multiple of what the tables weigh as whole tables."""
    work = make_workload(pick, pick(counts), dims)
    (local, hosts), space = pick(shapes), make_space(pick)
    constraints = make_constraints(pick, [t.name for t in work.tables])
    roomy = legal(Case(work, cluster(local, hosts, ddr_bytes_per_host=2**40), space, constraints))
    need = sum(shard_bytes(roomy, t, "table_wise", "fused", t.num_embeddings, t.embedding_dim)[0] for t in work.tables)
    each = need / (local * hosts)
    reserve = pick((0, 0, 0, 1000))
    hbm: list[int] = [max(1, int(each * pick(tightness))) + reserve] * (local * hosts)
    if pick((False, False, True)):
        hbm = [max(1, int((size - reserve) * pick((0.5, 1.0, 1.0, 1.7)))) + reserve for size in hbm]
    host = max(1, int(each * local * pick(tightness)))
    devices = tuple(hbm) if len(set(hbm)) > 1 else hbm[0]
    made = cluster(local, hosts, devices, reserve_bytes=reserve, ddr_bytes_per_host=host)
    return replace(roomy, cluster=made)


def legal(case: Case) -> Case:
    """The case, or where a table has no legal placement at all: without rules, and with table_wise.

    Where caches may be, rows are prefetched, so that tables of several widths share none and bytes add up.
    """
    if UVM_CACHING.name in case.space.kernels:
        case = replace(case, workload=replace(case.workload, pipeline=PREFETCHING))
    try:
        build_problem(case.workload, case.cluster, case.space, case.constraints)
    except UsageError:
        wide = replace(case.space, types=(*case.space.types, "table_wise"))
        return replace(case, space=wide, constraints=replace(case.constraints, rules=()))
    return case


def under(pick: Pick, case: Case, models: Sequence[str]) -> Case:
    """The case under one of these cost models, with all that matters to it drawn too.

    Overheads are as small as what the small tables cost, so that both decide which plans are good.
    """
    case = replace(case, cost_model=pick(models))
    if case.cost_model == "torchrec":
        return case
    device = replace(
        case.cluster.device, l2_bytes=pick((None, 1000, 50_000, 10**7)), l2_bandwidth=pick((None, None, 5e11, 4e12)),
        launch_s=pick((None, 1e-9, 1e-10, 1e-10)),
    )  # fmt: skip
    links = replace(
        case.cluster.links, intra_host_latency_s=pick((None, 1e-9, 1e-8)), inter_host_latency_s=pick((None, 1e-8, 1e-7))
    )
    tables = tuple(replace(t, access=make_access(pick)) for t in case.workload.tables)
    case = replace(
        case,
        workload=replace(case.workload, tables=tables),
        cluster=replace(case.cluster, device=device, links=links),
    )
    return legal(on_disk(pick, case)) if pick((False,) * 4 + (True,)) else case


def on_disk(pick: Pick, case: Case) -> Case:
    """The case with tables on disk, where kernels run them there; the disk is as large as the host's memory was."""
    if case.workload.optimizer not in ON_DISK["cuda"].optimizers or case.constraints.memory == "torchrec":
        return case
    space = replace(case.space, kernels=("fused", "dense", "key_value"), cache_factors=pick(((0.2,), (0.1, 0.2))))
    disk = Disk(bandwidth=pick((1e9, 1e11)), reads_per_s=pick((1e5, 1e8)), access_bytes=pick((64, 4096)))
    size = case.cluster.ddr_bytes_per_host
    rules = tuple(replace(rule, compute_kernels=None) for rule in case.constraints.rules)
    return replace(
        case, space=space, constraints=replace(case.constraints, rules=rules),
        cluster=replace(case.cluster, ssd_bytes_per_host=size, ddr_bytes_per_host=None, disk=disk),
    )  # fmt: skip


def make_access(pick: Pick) -> AccessProfile | None:
    """Nothing known, a Zipf exponent, or counts of a batch."""
    if pick((True, True, False)):
        return pick((None, None, AccessProfile(zipf=0.0), AccessProfile(zipf=1.3), AccessProfile(zipf=2.0)))
    bins = pick(((1.0,), (0.5, 0.3, 0.2), (0.7, 0.1, 0.05, 0.05, 0.05, 0.05)))
    lookups, unique = pick(((20, 10), (100, 40), (1000, 300)))
    return AccessProfile(reuse_bins=bins + (0.0,) * (17 - len(bins)), lookups=lookups, unique_rows=unique)


def small_case(pick: Pick, tightness: Sequence[float] = TIGHT, models: Sequence[str] = ("torchrec",)) -> Case:
    """One to three tables on one to four ranks, so that every plan can be listed."""
    shapes = ((1, 1), (2, 1), (2, 1), (3, 1), (3, 1), (1, 2), (1, 3), (2, 2))
    case = make_case(pick, counts=(1, 2, 2, 3, 3), dims=(4, 8, 8, 12, 16), shapes=shapes, tightness=tightness)
    while np.prod([len(placements) for placements in all_placements(case).values()]) > MOST_PLANS:
        fewer = case.workload.tables[:-1]
        rules = tuple(rule for rule in case.constraints.rules if rule.tables in ("t*", *(t.name for t in fewer)))
        case = replace(
            case, workload=replace(case.workload, tables=fewer), constraints=replace(case.constraints, rules=rules)
        )
    return under(pick, case, models)


def medium_case(
    pick: Pick, tightness: Sequence[float] = TIGHT, models: Sequence[str] = ("torchrec",),
    counts: Sequence[int] = (1, 2, 4, 8), dims: Sequence[int] = (4, 8, 20, 64, 192),
) -> Case:  # fmt: skip
    """Up to eight tables on up to eight ranks."""
    shapes = ((1, 1), (2, 1), (4, 1), (1, 3), (2, 2), (3, 2), (4, 2))
    return under(pick, make_case(pick, counts=counts, dims=dims, shapes=shapes, tightness=tightness), models)


def large_case(pick: Pick) -> Case:
    """Five to forty tables on up to sixteen ranks."""
    shapes = ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (1, 4), (2, 2), (4, 2), (8, 2), (4, 4))
    return make_case(pick, counts=(5, 8, 13, 25, 40), dims=(4, 8, 16, 32, 64, 100, 128, 256), shapes=shapes)


def random_placements(pick: Pick, case: Case, tries: int = 20) -> tuple[Placement, ...]:
    """Legal placements drawn from the space, uneven column splits included; memory is not asked.

    Sequences of a collection that can only be column_wise may need several tries, or have no width in common at all.
    """
    made: list[Placement] = []
    shared = dict[str, int]()  # TorchRec runs one width for all column_wise sequence tables of a collection
    for t in case.workload.tables:
        modes = list(_modes(case, t))
        kind, kernel, cache, limit = pick(modes)
        widths = _random_widths(pick, case, t, kind, limit)
        if _shares_width(t, kind) and shared.setdefault(t.collection, widths[0]) != widths[0]:
            others = [mode for mode in modes if not _shares_width(t, mode[0])]
            if tries and not others:
                return random_placements(pick, case, tries - 1)
            kind, kernel, cache, limit = pick(others or modes)
            widths = _random_widths(pick, case, t, kind, limit)
        targets = _random_targets(pick, case, kind, widths)
        if not targets:
            widths, targets = (t.embedding_dim,), [0]
        made.append(_placement(t, kind.name, kernel, cache, kind.ranks(targets, case.cluster), widths))
    return tuple(sorted(made, key=lambda placement: placement.table))


def _shares_width(t: Table, kind: Any) -> bool:
    return not t.pooled and kind.name == "column_wise"


def _random_widths(pick: Pick, case: Case, t: Table, kind: Any, limit: int) -> tuple[int, ...]:
    """One of the type's splits: of few even ones, and of uneven ones cut at random."""
    splits = _splits(case, t, kind, limit, sample=True)
    if kind.splits_columns and case.space.widths == "any" and not kind.equal_widths(t, case.cluster):
        splits += [cut for cut in (_cut(pick, t.embedding_dim) for _ in range(3)) if min(cut) >= limit]
    return pick(splits)


def _random_targets(pick: Pick, case: Case, kind: Any, widths: Sequence[int]) -> list[int]:
    """A target for each piece, those of a table on one rank equally wide; none where that cannot be."""
    local, targets = case.cluster.local_world_size, list[int]()
    for width in widths:
        free = range((case.cluster.world_size, case.cluster.hosts, 1)[kind.span])
        if kind.span == Span.RANK:
            held = dict(zip(targets, widths, strict=False))
            free = [rank for rank in free if held.get(rank, width) == width]
        if kind.name == "table_column_wise" and targets:
            free = [rank for rank in free if rank // local == targets[0] // local]
        if not free:
            return []
        targets.append(pick(free))
    return targets


def _cut(pick: Pick, dim: int) -> tuple[int, ...]:
    left, widths = dim, []
    while left:
        widths.append(pick(range(4, left + 1, 4)))
        left -= widths[-1]
    return tuple(widths)


# --- slow sums ----------------------------------------------------------------------------------------------------


def demand_of(case: Case, t: Table, kind_name: str) -> tuple[float, float, float]:
    """(ids, bags, TorchRec's outputs) that one covered rank handles a step."""
    world, local = case.cluster.world_size, case.cluster.local_world_size
    ids = bags = outputs = 0.0
    for feature in t.features:
        batch = feature.batch_size or case.workload.batch_size
        ids += feature.pooling_factor * feature.num_poolings * batch
        bags += feature.num_poolings * batch
        outputs += min(1.0, feature.pooling_factor) * feature.num_poolings * batch
    served = 1 if kind_name == "data_parallel" else world
    shared = {"row_wise": world, "table_row_wise": local, "grid_shard": local}.get(kind_name, 1)
    ids = ids * busiest_share(t, shared, case.workload.hot_rows) * served
    return (ids, bags * served, outputs * served) if t.pooled else (ids, ids, ids)


def most_ids(case: Case, t: Table, kind_name: str, ids: float) -> float:
    """Ids that a rank of the busiest block exceeds in one of 1,000 batches: by a normal law, and chance in few ids."""
    world, local = case.cluster.world_size, case.cluster.local_world_size
    blocks = {"row_wise": world, "table_row_wise": local, "grid_shard": local}.get(kind_name, 1)
    if blocks == 1 or ids == 0:
        return ids
    share = busiest_share(t, blocks, case.workload.hot_rows)
    z = 3.0902
    return min(ids / share, ids + z * (ids * (1 - share)) ** 0.5 + (z * z - 1) / 6)


def busiest_share(t: Table, blocks: int, assumed: str | None) -> float:
    """The share of lookups that the busiest of TorchRec's blocks of rows finds, row by row."""
    access, rows = t.access, t.num_embeddings
    counted = access.block_lookups if access else None
    in_front = ((access.hot_rows if access else None) or assumed) == "in_front"
    if blocks == 1 or (counted is None and not in_front):
        return 1 / blocks
    if counted is None:
        zipf = access.zipf if access is not None and access.zipf is not None else DEFAULT_ZIPF
        chance = [(row + 1.0) ** -zipf for row in range(rows)]
    else:
        block = [row * len(counted) // rows for row in range(rows)]
        chance = [counted[each] / block.count(each) for each in block]
    size = -(-rows // blocks)
    return max(sum(chance[first : first + size]) for first in range(0, rows, size)) / sum(chance)


def with_blocks(pick: Pick, case: Case) -> Case:
    """The case with tables that say where their hot rows lie, or how busy each block of their rows is."""
    work = case.workload
    tables = tuple(replace(t, access=_with_blocks(pick, t)) for t in work.tables)
    return replace(case, workload=replace(work, tables=tables, hot_rows=pick((None, None, "scattered", "in_front"))))


def _with_blocks(pick: Pick, t: Table) -> AccessProfile | None:
    access, form = t.access, pick(("as it is", "in_front", "counted", "counted"))
    if form == "as it is" or (access is not None and access.reuse_bins is not None and form == "in_front"):
        return AccessProfile(zipf=0.7) if access is not None and access.reuse_bins is not None else access
    if form == "in_front":
        return replace(access, hot_rows="in_front") if access else AccessProfile(hot_rows="in_front")
    blocks = pick([each for each in (2, 3, 4, 7, 16) if each <= t.num_embeddings] or [1])
    lookups = (1.0, *(pick((0.0, 1.0, 2.0, 9.0, 40.0)) for _ in range(blocks - 1)))
    unique = pick((None, (1.0, *(pick((0.0, 1.0, 3.0)) for _ in range(blocks - 1)))))
    if access is None:
        return AccessProfile(block_lookups=lookups, block_unique_rows=unique)
    return replace(access, block_lookups=lookups, block_unique_rows=unique)


def shard_bytes(
    case: Case, t: Table, kind_name: str, kernel: str, rows: int, width: int, cache: Cache | None = None
) -> tuple[int, int]:
    """(device, host) bytes of one shard, in the constraints' accounting."""
    key = ("bytes", t.name, kind_name, kernel, rows, width, cache)
    if key not in case.known:
        case.known[key] = _shard_bytes(case, t, kind_name, kernel, rows, width, cache)
    return case.known[key]


def _shard_bytes(
    case: Case, t: Table, kind_name: str, kernel: str, rows: int, width: int, cache: Cache | None
) -> tuple[int, int]:
    ids, bags, outputs = demand_of(case, t, kind_name)
    if case.constraints.memory == "real":
        ids = most_ids(case, t, kind_name, ids)
        bags = bags if t.pooled else ids
    one = {
        "rows": rows, "width": width, "table_rows": t.num_embeddings, "table_dim": t.embedding_dim,
        "element_bytes": t.element_bytes, "ids": ids, "bags": bags, "outputs": outputs, "weighted": t.weighted,
        "int8": t.data_type == "int8", "data_parallel": kind_name == "data_parallel",
        "kernel": KERNEL_NAMES.index(kernel), "cache_load_factor": cache.load_factor if cache else 0.0,
    }  # fmt: skip
    account = ACCOUNTINGS[case.constraints.memory]
    size = account(
        Pieces(**cast(Any, {key: np.array([value]) for key, value in one.items()})),
        case.workload.optimizer, case.workload.pipeline,
    )  # fmt: skip
    return int(size.device[0]), int(size.host[0])


def shard_terms(evaluator: Evaluator, placement: Placement, width: int) -> tuple[int, Any]:
    """(fusion group, work terms (k,)) of one shard."""
    problem = evaluator.problem
    mode = _mode_of(problem, placement)
    terms = evaluator.terms(np.array([mode]), np.array([width]))[0]
    return int(evaluator.group[mode]), terms


def slow_parts(evaluator: Evaluator, plan: Plan) -> Any:
    """Seconds (W, 4): for each rank and fusion group, the head of the sum of its shards' terms; and what is shared."""
    how = {placement.table: placement for placement in plan.placements}
    sums: dict[tuple[int, int], Any] = {}
    for shard in plan.shards():
        placement = how[shard.table]
        group, terms = shard_terms(evaluator, placement, shard.columns[1] - shard.columns[0])
        sums[shard.rank, group] = sums.get((shard.rank, group), 0.0) + terms
    parts = np.zeros((plan.cluster.world_size, 4))
    for (rank, _), terms in sums.items():
        parts[rank] += evaluator.head(terms[None])[0]
    for group in {group for _, group in sums}:
        parts += evaluator.shared[group]
    return parts


def slow_total(evaluator: Evaluator, parts: Any) -> float:
    """Seconds of the step from the ranks' parts (W, 4): phase by phase, that of the slowest rank."""
    return sum(
        max(sum(rank[part] for part in phase) for rank in parts.tolist()) for phase in evaluator.step_rule.phases
    )


def slow_memory(case: Case, placements: Sequence[Placement]) -> tuple[list[int], list[int]]:
    """(device bytes per rank, host bytes per host), shard by shard."""
    device, host = [0] * case.cluster.world_size, [0] * case.cluster.hosts
    tables = {t.name: t for t in case.workload.tables}
    for placement in placements:
        t = tables[placement.table]
        for shard in shards_of(case, t, placement):
            rows, width = shard.rows[1] - shard.rows[0], shard.columns[1] - shard.columns[0]
            size = shard_bytes(case, t, placement.sharding_type, placement.compute_kernel, rows, width, placement.cache)
            device[shard.rank] += size[0]
            host[shard.rank // case.cluster.local_world_size] += size[1]
    return device, host


def shards_of(case: Case, t: Table, placement: Placement) -> tuple[Shard, ...]:
    widths = placement.widths or (t.embedding_dim,)
    return placement.kind.shards(t, placement.ranks, widths, case.cluster)


def fits(case: Case, placements: Sequence[Placement]) -> bool:
    """Whether device and host memory suffice everywhere."""
    device, host = slow_memory(case, placements)
    return fits_bytes(case, device, host)


def fits_bytes(case: Case, device: Sequence[int], host: Sequence[int]) -> bool:
    there = bytes_beneath(case.cluster, case.space)
    return all(a <= b for a, b in zip(device, case.cluster.capacities, strict=True)) and max(host) <= there


def check_plan(case: Case, plan: Plan) -> None:
    """Complete, legal, within memory, and inside of its space."""
    check_placements(plan.placements, case.workload, case.cluster)
    assert fits(case, plan.placements)
    tables = {t.name: t for t in case.workload.tables}
    for placement in plan.placements:
        t = tables[placement.table]
        modes = {(kind.name, kernel, cache): limit for kind, kernel, cache, limit in _modes(case, t)}
        limit = modes[placement.sharding_type, placement.compute_kernel, placement.cache]
        widths = placement.widths or (t.embedding_dim,)
        assert min(widths) >= min(limit, t.embedding_dim)
        if placement.kind.splits_columns and case.space.widths == "torchrec":
            assert set(widths) == {_torchrec_width(t.embedding_dim, limit)}
    assert plan.bound.value_s is not None
    assert (plan.gap is None) == (plan.bound.value_s == 0 < plan.cost.total_s)  # no share of nothing
    assert plan.gap is None or plan.gap >= 0
    assert plan.bound.value_s <= plan.cost.total_s * (1 + 1e-9)


# --- every plan of a small space ----------------------------------------------------------------------------------


def kernel_limits(case: Case) -> KernelLimits:
    """Limits where tables that rules leave no other types are split by rows."""
    rules = RulesByTable(case.constraints.rules)
    types = {each.name: (rule.sharding_types if (rule := rules.merged(each.name)) else None) or TYPE_NAMES
             for each in case.workload.tables}  # fmt: skip
    by_rows = {
        name for name, left in types.items() if not {*left} & {*case.space.types} - {"row_wise", "table_row_wise"}
    }
    return KernelLimits.of(case.workload, case.cluster, by_rows)


def _modes(case: Case, t: Table, relaxed: bool = False) -> Iterator[tuple[Any, str, Cache | None, int]]:
    """(type, kernel, cache, least width) that a table may have; relaxed: even where no legal split is left."""
    rule, limits = RulesByTable(case.constraints.rules).merged(t.name), kernel_limits(case)
    for kind in SHARDING_TYPES:
        if kind.name not in case.space.types or kind.refusal(t, case.cluster):
            continue
        if not relaxed and not _splits(case, t, kind, (rule.min_width if rule else None) or 0, sample=True):
            continue
        for kernel in kind.kernels:
            types = (rule.sharding_types if rule else None) or TYPE_NAMES
            if kernel in case.space.kernels and kind.name in types:
                for cache in _caches(case) if kernel in CACHED_KERNELS else (None,):
                    if limits.refusal(t, kind.name, kernel, cache.load_factor if cache else 0.0):
                        continue
                    yield kind, kernel, cache, (rule.min_width if rule else None) or 0


def _caches(case: Case) -> list[Cache]:
    return [Cache(load_factor=factor) for factor in case.space.cache_factors]


def _torchrec_width(dim: int, limit: int) -> int:
    """The smallest divisor of dim from 128 (or the limit) on that is a multiple of 4; else dim."""
    return min((w for w in range(limit or 128, dim + 1) if dim % w == 0 and w % 4 == 0), default=dim)


def compositions(steps: int) -> Iterator[tuple[int, ...]]:
    """All ordered ways to add up to `steps`."""
    if steps == 0:
        yield ()
    for first in range(1, steps + 1):
        for rest in compositions(steps - first):
            yield (first, *rest)


def _splits(case: Case, t: Table, kind: Any, limit: int, sample: bool = False) -> list[tuple[int, ...]]:
    """Every split of the table's columns in the space; a sample is content with the even ones."""
    dim = t.embedding_dim
    if not kind.splits_columns:
        return [(dim,)]
    least, most = kind.column_counts(t, case.cluster)
    if case.space.widths == "torchrec":
        width = _torchrec_width(dim, limit)
        every: list[tuple[int, ...]] = [(width,) * (dim // width)]
    elif sample or kind.equal_widths(t, case.cluster):
        every = [(width,) * (dim // width) for width in range(4, dim + 1, 4) if dim % width == 0]
    else:
        every = [tuple(4 * step for step in steps) for steps in compositions(dim // 4)]
    return [w for w in every if min(w) >= min(limit, dim) and least <= len(w) <= most]


def all_placements(case: Case) -> dict[str, list[Placement]]:
    """Every legal placement of every table, tables one by one."""
    return {t.name: list(_placements(case, t)) for t in case.workload.tables}


def _placements(case: Case, t: Table) -> Iterator[Placement]:
    sizes = {Span.RANK: case.cluster.world_size, Span.HOST: case.cluster.hosts, Span.WORLD: 1}
    for kind, kernel, cache, limit in _modes(case, t):
        for widths in _splits(case, t, kind, limit):
            for targets in itertools.product(range(sizes[kind.span]), repeat=len(widths)):
                ranks = kind.ranks(targets, case.cluster)
                try:
                    kind.check(t, ranks, widths, case.cluster)
                except PlanMismatch:
                    continue
                yield _placement(t, kind.name, kernel, cache, ranks, widths)


def _placement(
    t: Table, kind: str, kernel: str, cache: Cache | None, ranks: tuple[int, ...], widths: tuple[int, ...]
) -> Placement:
    return Placement(
        table=t.name, sharding_type=kind, compute_kernel=kernel, ranks=ranks,
        widths=widths if len(widths) > 1 else (), cache=cache,
    )  # fmt: skip


@dataclass(frozen=True)
class BruteForce:
    """Every plan of a case: placements by table, and the least seconds of the plans within memory (None: no plan)."""

    placements: dict[str, frozenset[Placement]]
    least_s: float | None

    def holds(self, plan: Plan) -> bool:
        """Whether a plan is one of the listed ones (memory and sequence widths are checked by check_plan)."""
        return all(placement in self.placements[placement.table] for placement in plan.placements)


def brute_force(case: Case) -> BruteForce:
    """Lists all plans."""
    every = all_placements(case)
    tables = {t.name: t for t in case.workload.tables}
    found = [_Placed.of(case, tables[name], placements) for name, placements in every.items()]
    picks = np.indices([len(placed.group) for placed in found]).reshape(len(found), -1)
    picks = picks[:, _within_limits(case, found, picks)]
    least = float(_totals(case, found, picks).min()) if picks.size else None
    return BruteForce({name: frozenset(placements) for name, placements in every.items()}, least)


@dataclass(frozen=True)
class _Placed:
    """The placements (n,) of a table that differ: fusion group, terms on each rank (n, W, k), and what has limits.

    limits: device bytes per rank, host bytes per host, and the column_wise sequence width of each table.
    """

    group: Any
    terms: Any
    limits: Any

    @classmethod
    def of(cls, case: Case, t: Table, placements: Sequence[Placement]) -> "_Placed":
        rows = np.unique([_row(case, t, placement) for placement in placements], axis=0)
        world, hosts, count = case.cluster.world_size, case.cluster.hosts, len(case.workload.tables)
        group, terms, limits = np.split(rows, [1, rows.shape[1] - world - hosts - count], axis=1)
        return cls(group[:, 0].astype(int), terms.reshape(len(rows), world, -1), limits)


def _row(case: Case, t: Table, placement: Placement) -> list[float]:
    """The fields of `_Placed` for one placement, flat."""
    shards = shards_of(case, t, placement)
    made = [_terms(case, t, placement, shard.columns[1] - shard.columns[0]) for shard in shards]
    terms = np.zeros((case.cluster.world_size, len(made[0][1])))
    for shard, (_, each) in zip(shards, made, strict=True):
        terms[shard.rank] += each
    device, host = slow_memory(case, (placement,))
    widths = [0.0] * len(case.workload.tables)
    if not t.pooled and placement.sharding_type == "column_wise":
        widths[case.workload.tables.index(t)] = placement.widths_of(t.embedding_dim)[0]
    return [made[0][0], *terms.ravel().tolist(), *device, *host, *widths]


def _terms(case: Case, t: Table, placement: Placement, width: int) -> tuple[int, Any]:
    """(fusion group, terms (k,)) of a shard; those of all widths of all modes are asked for at once."""
    problem = case.problem
    if "terms" not in case.known:
        pairs = [(m, width) for m, i in enumerate(problem.modes.table) for width in _widths(problem.tables[i])]
        terms = case.evaluator.terms(*np.array(pairs).T)
        case.known["terms"] = dict(zip(pairs, terms, strict=True))
    mode = _mode_of(problem, placement)
    return int(case.evaluator.group[mode]), case.known["terms"][mode, width]


def _mode_of(problem: Problem, placement: Placement) -> int:
    table = [t.name for t in problem.tables].index(placement.table)
    mode = problem.find_mode(table, placement.sharding_type, placement.compute_kernel, placement.load_factor)
    assert mode is not None
    return mode


def _widths(t: Table) -> range:
    return range(4, t.embedding_dim + 1, 4)


def _within_limits(case: Case, found: Sequence[_Placed], picks: Any) -> Any:
    """Which plans (picks (T, N) of placements) fit memory and run one width per collection of sequences."""
    limits = sum(placed.limits[pick] for placed, pick in zip(found, picks, strict=True))
    world, hosts = case.cluster.world_size, case.cluster.hosts
    device, host, widths = np.split(limits, np.cumsum([world, hosts]), axis=1)
    room = np.array(case.cluster.capacities)
    legal = (device <= room).all(axis=1) & (host <= bytes_beneath(case.cluster, case.space)).all(axis=1)
    return legal & _one_width(case, widths)


def _totals(case: Case, found: Sequence[_Placed], picks: Any) -> Any:
    """Seconds (N,) of plans: each table that is first of its group prices the terms of the whole group."""
    evaluator = case.evaluator
    groups = np.stack([placed.group[pick] for placed, pick in zip(found, picks, strict=True)])  # (T, N)
    parts = np.zeros((picks.shape[1], case.cluster.world_size, 4))
    for i, group in enumerate(groups):
        first = np.flatnonzero((groups[:i] != group).all(axis=0))
        sums = np.zeros((len(first), *found[i].terms.shape[1:]))
        for placed, pick, other in zip(found[i:], picks[i:], groups[i:], strict=True):
            sums += np.where((other == group)[first, None, None], placed.terms[pick[first]], 0.0)
        parts[first] += evaluator.head(sums) + evaluator.shared[group[first], None, :]
    return sum(parts[..., phase].sum(axis=-1).max(axis=1) for phase in evaluator.step_rule.phases)


def _one_width(case: Case, widths: Any) -> Any:
    """TorchRec runs one width for all column_wise sequence tables of a collection (0: not column_wise)."""
    tables, same = case.workload.tables, np.ones(len(widths), dtype=bool)
    for i, j in itertools.combinations(range(len(tables)), 2):
        if tables[i].collection == tables[j].collection:
            both = (widths[:, i] > 0) & (widths[:, j] > 0)
            same &= ~both | (widths[:, i] == widths[:, j])
    return same


# --- what no plan can do without ----------------------------------------------------------------------------------


def least_bytes(case: Case, t: Table) -> int | None:
    """The fewest device bytes that a table can take over all ranks; None: it fits nowhere.

    Under widths any, every split into multiples of 4 counts, even for sequences, which take equal widths: bounds say so
    too. The few splits of grid_shard are tried one by one, as bounds do.
    """
    found: list[int] = []
    for kind, kernel, cache, limit in _modes(case, t, relaxed=case.space.widths == "any"):
        dim, least = t.embedding_dim, min(limit, t.embedding_dim)
        if kind.name == "grid_shard":
            for split in _splits(case, t, kind, limit):
                piece = _piece_bytes(case, t, kind, kernel, cache, split[0])
                found += [] if piece is None else [piece * len(split)]
            continue
        if kind.splits_columns and case.space.widths == "any":
            widths = [w for w in range(4, dim + 1, 4) if w >= least]
            size = {w: _piece_bytes(case, t, kind, kernel, cache, w) for w in widths}
            best: dict[int, int | None] = {0: 0}
            for filled in range(4, dim + 1, 4):
                sums = [_add(best.get(filled - w), size[w]) for w in widths if w <= filled]
                best[filled] = min((total for total in sums if total is not None), default=None)
            total = best[dim]
        else:
            widths = _splits(case, t, kind, limit)[0]
            total = 0
            for width in widths:
                total = _add(total, _piece_bytes(case, t, kind, kernel, cache, width))
        if total is not None:
            found.append(total)
    return min(found, default=None)


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _piece_bytes(case: Case, t: Table, kind: Any, kernel: str, cache: Cache | None, width: int) -> int | None:
    """Device bytes of one column piece over the ranks it covers; None where no target has room for it."""
    for target in range((case.cluster.world_size, case.cluster.hosts, 1)[kind.span]):
        ranks = kind.ranks((target,), case.cluster)
        shards = kind.shards(replace(t, embedding_dim=width), ranks, (width,), case.cluster)
        device, host = [0] * case.cluster.world_size, [0] * case.cluster.hosts
        for shard in shards:
            size = shard_bytes(case, t, kind.name, kernel, shard.rows[1] - shard.rows[0], width, cache)
            device[shard.rank] += size[0]
            host[shard.rank // case.cluster.local_world_size] += size[1]
        if fits_bytes(case, device, host):
            return sum(device)
    return None


def impossible(case: Case) -> bool:
    """Whether a table fits nowhere, or all tables at their lightest weigh more than all devices together."""
    sizes = [least_bytes(case, t) for t in case.workload.tables]
    return None in sizes or sum(size for size in sizes if size is not None) > sum(case.cluster.capacities)
