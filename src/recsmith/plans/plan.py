"""A plan: the placement of every table for a workload and a cluster, its cost, and the bound for comparison."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.errors import UsageError, check_rules
from recsmith.plans.predicted_error import PublishedError
from recsmith.sharding import CACHED_KERNELS, NOTED_ON_CUDA, Shard, ShardingType, sharding_type
from recsmith.sharding.memory import CACHE_LOAD_FACTOR
from recsmith.units import LEAST_TIME, format_time
from recsmith.workloads import Workload
from recsmith.workloads.optimizers import OPTIMIZERS

PARTS = ("forward_compute_s", "backward_compute_s", "forward_comm_s", "backward_comm_s")


EXACT, LONGER = "exact: ", "longer: "  # prefixes of the kinds of bounds that were proved by a search
SAME_SECONDS = 1e-6  # relative difference allowed between two sums of seconds of one price
LONGEST_S = 1e30  # seconds: more than any legal workload takes on any legal cluster; larger numbers would overflow


def _check_seconds(value: float, what: str) -> None:
    if not 0 <= value <= LONGEST_S:
        raise UsageError(f"{what} is {value}; it must lie between 0 and {LONGEST_S:g} seconds")


@noun
class DeviceCost:
    """Seconds that a rank spends in each part of a step, and its memory; parts and wait add up to the step."""

    rank: int
    forward_compute_s: float
    backward_compute_s: float
    forward_comm_s: float
    backward_comm_s: float
    wait_s: float
    hbm_bytes: int
    hbm_capacity_bytes: int

    def __post_init__(self) -> None:
        for part in (*PARTS, "wait_s"):
            _check_seconds(getattr(self, part), f"{part} of rank {self.rank}")
        if self.hbm_bytes < 0 or self.hbm_capacity_bytes < 1:
            raise UsageError(
                f"rank {self.rank} uses {self.hbm_bytes} of {self.hbm_capacity_bytes} bytes; it must use 0 or more of "
                "at least 1"
            )

    @property
    def busy_s(self) -> float:
        """Seconds that the rank is not waiting."""
        return self.forward_compute_s + self.backward_compute_s + self.forward_comm_s + self.backward_comm_s


@noun
class StepCost:
    """Seconds of the embedding part of a training step, in total and by rank.

    total_s: the seconds that a plan decides, which planners minimize and bounds limit. To report or compare steps, use
        step_s.
    sequences_s: the seconds that every rank takes in addition, under any plan, for rows of sequence tables: with index
        deduplication, to find equal ids and to copy rows back to each id; on CPU, to send them.
    """

    total_s: float
    per_device: tuple[DeviceCost, ...]
    sequences_s: float = 0.0

    def __post_init__(self) -> None:
        _check_seconds(self.total_s, "total_s")
        _check_seconds(self.sequences_s, "sequences_s")

    @property
    def step_s(self) -> float:
        """Seconds of the step as reported everywhere: those that the plan decides, and those that any plan takes."""
        return self.total_s + self.sequences_s

    @property
    def mean_s(self) -> float:
        """Mean busy seconds of the devices; total over mean is the imbalance."""
        return sum(device.busy_s for device in self.per_device) / len(self.per_device)

    @property
    def overfull(self) -> tuple[DeviceCost, ...]:
        """Devices that need more memory than they have."""
        return tuple(device for device in self.per_device if device.hbm_bytes > device.hbm_capacity_bytes)


@noun
class Bound:
    """A lower bound: no plan in the stated space costs less than value_s (None: the cost model gives no bound).

    kind: how it was proved; 'exact: ...' and 'longer: ...' by a search.
    space: the space for which it holds, as a sentence.
    """

    value_s: float | None
    kind: str
    space: str

    def __post_init__(self) -> None:
        if self.value_s is not None:
            _check_seconds(self.value_s, "value_s of the bound")

    @property
    def searched(self) -> bool:
        """Whether a search proved the bound, so that pricing the plan again does not give it."""
        return self.kind.startswith((EXACT, LONGER))

    def of_step(self, cost: StepCost) -> float | None:
        """Lower bound of the whole step, to be compared with StepCost.step_s; None if there is no bound."""
        return None if self.value_s is None else self.value_s + cost.sequences_s

    def gap(self, total_s: float) -> float | None:
        """How far a plan of this cost can be from the best: total / bound - 1; None if there is no bound."""
        if self.value_s is None:
            return None
        if total_s < self.value_s * (1 - 1e-9):
            raise UsageError(
                f"a plan of {total_s} s lies below its bound of {self.value_s} s: the plan is not in the space"
            )
        if self.value_s == 0:
            return 0.0 if total_s == 0 else None
        return max(0.0, total_s / self.value_s - 1)


def wrong_price(cost: StepCost, bound: Bound, gap: float | None) -> str | None:
    """Message for a price whose ranks, step parts or gap contradict the rest of it; None if it is consistent."""
    for rank, device in enumerate(cost.per_device):
        if device.rank != rank:
            return f"the cost of rank {rank} is of rank {device.rank}"
        if not _is_same(device.busy_s + device.wait_s, cost.total_s):
            times = f"{format_time(device.busy_s + device.wait_s)}, and the step takes {format_time(cost.total_s)}"
            return f"parts and wait of rank {rank} add up to {times}"
    if gap is None or bound.value_s is None:
        return None if gap is None else f"its gap is {gap:.4g}, and nothing bounds it"
    return None if _is_same((1 + gap) * bound.value_s, cost.total_s) else f"its gap is {gap:.4g}, not step / bound - 1"


def _is_same(one_s: float, other_s: float) -> bool:
    """Whether two times are equal up to rounding in sums."""
    return math.isclose(one_s, other_s, rel_tol=SAME_SECONDS, abs_tol=LEAST_TIME)


def wrong_load_factor(share: float) -> str | None:
    """Message for a share of a table's rows that no cache can hold; None if the share is valid."""
    return None if 0 < share <= 1 else f"load_factor is {share}; it must lie above 0 and at most at 1"


CachePolicy = Literal["lru", "static"]
Stash = Literal["weights", "weights_and_state"]  # the parts of a table that are in host memory while dense layers run


@noun
class Cache:
    """The device cache of a table that is stored outside device memory, as a share of the table's rows.

    policy: which rows are cached. lru: the rows read last. static: the most read rows, for tables on disk on CPU.
    """

    load_factor: float
    policy: CachePolicy = "lru"

    def __post_init__(self) -> None:
        check_rules(wrong_load_factor(self.load_factor))


def describe_kernel(kernel: str, cache: Cache | None) -> str:
    """A kernel as reports name it, such as 'fused_uvm_caching at 0.2'."""
    if cache is None:
        return kernel
    return f"{kernel} at {cache.load_factor:g}" + (f" ({cache.policy})" if cache.policy != "lru" else "")


@noun
class Placement:
    """The placement of one table: TorchRec's sharding type, kernel and ranks, and the widths of its column pieces.

    ranks: one per shard, in shard order.
    widths: of the column pieces; () is the whole table in one piece.
    cache: for fused_uvm_caching and key_value; None is replaced by FBGEMM's default.
    stash: the parts kept in host memory from lookup to update (docs/stashing.md); None: none.
    """

    table: str
    sharding_type: str
    compute_kernel: str
    ranks: tuple[int, ...]
    widths: tuple[int, ...] = ()
    cache: Cache | None = None
    stash: Stash | None = None

    def __post_init__(self) -> None:
        """Set the cache that FBGEMM uses by default if none is given."""
        if self.cache is None and self.compute_kernel in CACHED_KERNELS:
            object.__setattr__(self, "cache", Cache(load_factor=CACHE_LOAD_FACTOR))

    @property
    def load_factor(self) -> float:
        """Share of the rows that the kernel caches on the device; 0 without a cache."""
        return self.cache.load_factor if self.cache else 0.0

    @property
    def cache_policy(self) -> CachePolicy:
        """Which rows the cache keeps; lru without a cache."""
        return self.cache.policy if self.cache else "lru"

    @property
    def kind(self) -> ShardingType:
        """The sharding type with this name."""
        return sharding_type(self.sharding_type)

    def widths_of(self, dim: int) -> tuple[int, ...]:
        """Widths of the column pieces of a table of `dim` columns."""
        return self.widths or (dim,)


@noun
class Plan:
    """Placements of all tables (sorted by name) with the problem they solve and the price.

    constraints: the searched space and the constraints, as plain data (stored with the bound for which they hold).
    extrapolated: inputs beyond the training range of a learned cost model, and by what factor, the largest first.
    error: how far the predicted step may be off; None in older files (recsmith.costs.published computes it).
    towers: the tables of each host, if they were planned as towers.
    digest: of workload, cluster, constraints and placements; equal digests mean equal plans.
    """

    workload: Workload
    cluster: Cluster
    constraints: dict[str, Any] = field(default_factory=dict[str, Any])
    placements: tuple[Placement, ...]
    planner: str
    cost_model: str
    cost: StepCost
    bound: Bound
    gap: float | None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    error: PublishedError | None = None
    towers: tuple[tuple[str, ...], ...] = ()
    digest: str = ""

    def shards(self) -> tuple[Shard, ...]:
        """All shards, derived from the placements by their sharding types."""
        return shards_of(self.placements, self.workload, self.cluster)

    def __repr__(self) -> str:
        """The number of placed tables and the price, without the single tables."""
        gap = "" if self.gap is None else f", gap={self.gap:.3g}"
        return (
            f"Plan({len(self.placements)} tables on {self.cluster.describe()}; planner={self.planner!r}, "
            f"cost_model={self.cost_model!r}, total_s={self.cost.total_s:.4g}{gap})"
        )


@noun
class PlacedTables:
    """The placements of a plan file, without their price.

    constraints: None if the file names none.
    missing: the first part of a price that the file leaves out.
    """

    workload: Workload
    cluster: Cluster
    constraints: dict[str, Any] | None
    placements: tuple[Placement, ...]
    cost_model: str | None
    missing: str


def shards_of(placements: Sequence[Placement], workload: Workload, cluster: Cluster) -> tuple[Shard, ...]:
    """All shards of placements, in the order of the placements."""
    tables = {table.name: table for table in workload.tables}
    return tuple(
        shard
        for placement in placements
        for shard in placement.kind.shards(
            tables[placement.table],
            placement.ranks,
            placement.widths_of(tables[placement.table].embedding_dim),
            cluster,
        )
    )


def wide_tables(plan: Plan) -> list[str]:
    """Tables with pieces wider than NOTED_ON_CUDA columns on CUDA devices, which not all FBGEMM kernels support."""
    if plan.cluster.device.kind != "cuda":
        return []
    dims = {table.name: table.embedding_dim for table in plan.workload.tables}
    widest = {each.table: max(each.widths_of(dims[each.table])) for each in plan.placements}
    return [table for table, width in widest.items() if width > NOTED_ON_CUDA]


def inexact_tables(plan: Plan) -> list[str]:
    """Tables that train differently from the unsharded model: split by columns under a row-wise optimizer."""
    kept = {table.name: OPTIMIZERS[plan.workload.optimizer_of(table)] for table in plan.workload.tables}
    return [each.table for each in plan.placements if len(each.widths) > 1 and kept[each.table].is_row_wise]


def inexact_optimizers(plan: Plan) -> str:
    """The row-wise optimizers of the tables of `inexact_tables`, as text."""
    inexact = set(inexact_tables(plan))
    found = {plan.workload.optimizer_of(table) for table in plan.workload.tables if table.name in inexact}
    return " and ".join(sorted(found))
