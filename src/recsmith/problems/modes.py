"""Modes: every legal (table, type, kernel, cache factor), and the work of one covered rank for it in a step.

Legend: T tables (in canonical order), M modes, F cache factors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems.drawn import most_ids, most_rows
from recsmith.problems.space import NoChoiceLeft, Space, TableRule, kernels_of, types_of
from recsmith.sharding import (
    CACHED_KERNELS,
    KERNEL_NAMES,
    KEY_VALUE,
    SHARDING_TYPES,
    SPLIT_ROWS,
    WIDTH_STEP,
    ShardingType,
    leaves_rank_empty,
    widest_piece,
)
from recsmith.sharding.kernel_limits import FIX, KernelLimits
from recsmith.workloads import Table, Workload
from recsmith.workloads.access import HotRows
from recsmith.workloads.optimizers import OPTIMIZER_NAMES
from recsmith.workloads.reuse import TINY, Reuse
from recsmith.workloads.row_blocks import busiest_blocks, busiest_deviation, hot_rows_of

Rules = dict[str, TableRule | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Per table (T,): its shape, and its work for the local batch of one device in a step.

    ids: rows looked up, equal ids counted once if ids are deduplicated.
    bags: embeddings returned (poolings; for sequences, ids).
    outputs: bags as TorchRec's estimator counts them, min(1, pooling factor) for each pooling.
    repeats: ids of the batch per id that is looked up; 1 without deduplication.
    optimizer: index of the table's optimizer in OPTIMIZER_NAMES.
    """

    rows: Ints
    dim: Ints
    element_bytes: Ints
    ids: Floats
    bags: Floats
    outputs: Floats
    repeats: Floats
    pooled: Bools
    mean: Bools
    weighted: Bools
    int8: Bools
    optimizer: Ints

    @classmethod
    def of(cls, workload: Workload, tables: tuple[Table, ...]) -> "Demand":
        """The demand of a workload on these tables."""
        batch = np.array([_batch_demand(table, workload.batch_size) for table in tables]).reshape(-1, 3)
        repeats = _repeats(workload, tables, batch[:, 0])
        batch /= repeats[:, None]
        return cls(
            rows=np.array([table.num_embeddings for table in tables], dtype=np.int64),
            dim=np.array([table.embedding_dim for table in tables], dtype=np.int64),
            element_bytes=np.array([table.element_bytes for table in tables], dtype=np.int64),
            ids=batch[:, 0],
            bags=batch[:, 1],
            outputs=batch[:, 2],
            repeats=repeats,
            pooled=np.array([table.pooled for table in tables]),
            mean=np.array([table.pooling == "mean" for table in tables]),
            weighted=np.array([table.weighted for table in tables]),
            int8=np.array([table.data_type == "int8" for table in tables]),
            optimizer=np.array(
                [OPTIMIZER_NAMES.index(workload.optimizer_of(table)) for table in tables], dtype=np.int64
            ),
        )


def _batch_demand(table: Table, batch_size: int) -> tuple[float, float, float]:
    """(ids, bags, outputs) of one local batch, summed over features by TorchRec's own operations in its order."""
    ids = bags = outputs = 0
    for feature in table.features:
        factor, poolings, batch = feature.pooling_factor, feature.num_poolings, feature.batch_size or batch_size
        ids += factor * poolings * batch
        bags += poolings * batch
        outputs += min(1.0, factor) * poolings * batch
    return (ids, bags, outputs) if table.pooled else (ids, ids, ids)


def _repeats(workload: Workload, tables: tuple[Table, ...], ids: Floats) -> Floats:
    """Mean number of equal ids (T,) of a rank per id that is looked up; 1 for tables without deduplication."""
    repeats = np.ones(len(tables))
    some = np.flatnonzero([workload.deduplicates(table) for table in tables])
    if some.size:
        different = Reuse.of([tables[t] for t in some]).unique_rows(np.arange(some.size), ids[some])
        repeats[some] = np.where(different > 0, ids[some] / np.maximum(different, TINY), 1.0)
    return repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """Per mode (M,): the work of one covered rank in a step, and how its rows are cut.

    load_factor: share of the rows that the kernel caches on the device; 0 for kernels without a cache.
    static: whether the cache keeps the most read rows instead of the rows read last.
    group: number of the group of tables that TorchRec fuses into one kernel.
    head_rows: rows on each covered rank except the last; tail_rows: on the last.
    repeats: as in Demand.
    most_ids, most_rows: ids, and different rows among them, that 99.9 % of steps do not exceed.
    spread, row_spread: lookups of a piece on all its ranks, and their different rows, divided by those of its busiest
        rank, by which every rank is priced. Both are the number of row blocks if all are equally busy, and 1 if rows
        are whole.
    """

    table: Ints
    type: Ints
    kernel: Ints
    load_factor: Floats
    static: Bools
    group: Ints
    coverage: Ints
    span: Ints
    ids: Floats
    bags: Floats
    outputs: Floats
    head_rows: Ints
    tail_rows: Ints
    repeats: Floats
    most_ids: Floats
    most_rows: Floats
    spread: Floats
    row_spread: Floats

    @property
    def lookups(self) -> Floats:
        """Ids (M,) that the batches of all ranks send to all ranks of a piece, including equal ids."""
        return self.ids * self.spread * self.repeats


def build_modes(
    tables: tuple[Table, ...], demand: Demand, limits: KernelLimits, cluster: Cluster, space: Space, rules: Rules,
    hot_rows: HotRows | None,
) -> Modes:  # fmt: skip
    """All modes, ordered by table, type, kernel and factor; UsageError for a table without any.

    hot_rows: where hot rows are assumed to be in tables that do not say.
    """
    table, kind, kernel, factor = _legal_modes(tables, demand.rows, limits, cluster, space, rules)
    coverage = np.array([sharding.coverage(cluster) for sharding in SHARDING_TYPES])[kind]
    blocks = np.array([sharding.blocks(cluster) for sharding in SHARDING_TYPES])[kind]
    multiplier = np.array([sharding.samples_share(cluster) for sharding in SHARDING_TYPES])[kind]
    lookups = demand.ids[table] * demand.repeats[table]
    spread, row_spread = _spreads(tables, table, kind, lookups * multiplier, cluster, hot_rows)
    once = np.flatnonzero(demand.repeats[table] > 1)
    if once.size:  # the busiest block has its share of the different rows of each rank
        spread[once] = _spreads(tables, table[once], kind[once], lookups[once], cluster, hot_rows)[1]
    head = -(-demand.rows[table] // blocks)
    ids = demand.ids[table] / spread * multiplier
    most = most_ids(ids, 1 / spread, _deviations(tables, table, blocks))
    return Modes(
        table=table, type=kind, kernel=kernel, coverage=coverage, ids=ids,
        load_factor=factor,
        static=(kernel == KEY_VALUE.number) & (space.cache_policy == "static"),
        group=_fusion_groups(tables, demand.optimizer, table, kind),
        span=np.array([int(sharding.span) for sharding in SHARDING_TYPES])[kind],
        bags=np.where(demand.pooled[table], demand.bags[table] * multiplier, ids),
        outputs=np.where(demand.pooled[table], demand.outputs[table] * multiplier, ids),
        head_rows=head,
        tail_rows=demand.rows[table] - (blocks - 1) * head,
        repeats=demand.repeats[table],
        most_ids=most,
        most_rows=most_rows(head, most, _different_rows(tables, table, lookups * multiplier, row_spread)),
        spread=spread,
        row_spread=row_spread,
    )  # fmt: skip


def _deviations(tables: tuple[Table, ...], table: Ints, blocks: Ints) -> Floats:
    """The standard deviation between batches of the share of the busiest of `blocks` blocks (M,)."""
    known = np.array([each.access is not None and each.access.busiest_deviation is not None for each in tables])
    found = np.zeros(len(table))
    for i in np.flatnonzero(known[table] & (blocks > 1)).tolist():
        found[i] = busiest_deviation(tables[int(table[i])], int(blocks[i]))
    return found


def _different_rows(tables: tuple[Table, ...], table: Ints, lookups: Floats, row_spread: Floats) -> Floats:
    """Different rows (M,) of the busiest block in `lookups` lookups; infinite without Zipf exponent or reuse bins."""
    profiles = [each.access for each in tables]
    known = np.array([each is not None and (each.zipf is not None or each.reuse_bins is not None) for each in profiles])
    found = np.full(len(table), np.inf)
    some = np.flatnonzero(known[table])
    if some.size:
        found[some] = Reuse.of(tables).unique_rows(table[some], lookups[some]) / row_spread[some]
    return found


def _spreads(
    tables: tuple[Table, ...], table: Ints, kind: Ints, lookups: Floats, cluster: Cluster, hot_rows: HotRows | None
) -> tuple[Floats, Floats]:
    """Spread and row spread (M,) of modes with these tables, types, and lookups over all their ranks."""
    spreads = np.array([sharding.blocks(cluster) for sharding in SHARDING_TYPES], dtype=np.float64)[kind]
    row_spreads = spreads.copy()
    uneven = np.array([hot_rows_of(each, hot_rows) != "scattered" for each in tables])
    some = np.flatnonzero(uneven[table] & (spreads > 1))
    if some.size:
        keys, first, inverse = np.unique(
            table[some] * len(SHARDING_TYPES) + kind[some], return_index=True, return_inverse=True
        )
        asked, index = some[first], keys // len(SHARDING_TYPES)
        busiest = busiest_blocks(tables, Reuse.of(tables), index, spreads[asked], lookups[asked], hot_rows)
        spreads[some], row_spreads[some] = (1 / share[inverse] for share in busiest)
    return spreads, row_spreads


def _legal_modes(
    tables: tuple[Table, ...], rows: Ints, limits: KernelLimits, cluster: Cluster, space: Space, rules: Rules
) -> tuple[Ints, Ints, Ints, Floats]:
    """Table, type, kernel and cache factor of every legal mode, in this order; UsageError for a table without any.

    Legality is worked out once for tables that differ only in names, features, access profiles and rows, provided that
    they have rows enough for the same types.
    """
    empty = np.stack([leaves_rank_empty(rows, kind.blocks(cluster)) for kind in SHARDING_TYPES], axis=1)
    known: dict[object, list[tuple[int, int, float]]] = {}
    found: list[list[tuple[int, int, float]]] = []
    for table, few in zip(tables, empty, strict=True):
        rule = rules.get(table.name)
        look = (
            few.tobytes(), table.embedding_dim, table.pooling, table.data_type, table.collection, table.dynamic,
            table.optimizer, rule and (rule.sharding_types, rule.compute_kernels, rule.cache_factors),
        )  # fmt: skip
        if look not in known:
            known[look] = sorted(_legal_of(table, limits, cluster, space, rule))
        found.append(known[look])
    kind, kernel, factor = zip(*chain.from_iterable(found), strict=True)
    table = np.repeat(np.arange(len(tables)), [len(each) for each in found])
    return table, np.array(kind, np.int64), np.array(kernel, np.int64), np.array(factor, np.float64)


def _legal_of(
    table: Table, limits: KernelLimits, cluster: Cluster, space: Space, rule: TableRule | None
) -> list[tuple[int, int, float]]:
    """(type, kernel, cache factor) of every legal mode of a table; UsageError if there is none."""
    if table.embedding_dim % WIDTH_STEP:
        raise UsageError(
            f"table '{table.name}' has embedding_dim {table.embedding_dim}; FBGEMM's kernels need a multiple of "
            f"{WIDTH_STEP}: pad it to {-(-table.embedding_dim // WIDTH_STEP) * WIDTH_STEP}"
        )
    kinds = [
        (i, kind) for i, kind in enumerate(SHARDING_TYPES)
        if kind.name in types_of(space, rule) and not kind.refusal(table, cluster)
    ]  # fmt: skip
    kernels = list(_kernels(space, rule))
    legal = [
        (i, kernel, factor)
        for i, kind in kinds
        for name, kernel, factor in kernels
        if name in kind.kernels and limits.refusal(table, kind.name, name, factor) is None
    ]
    if not legal:
        raise NoChoiceLeft(no_mode(table, limits, cluster, space, rule))
    return legal


def _kernels(space: Space, rule: TableRule | None) -> Iterator[tuple[str, int, float]]:
    """(name, number, cache factor) of the kernels that space and rule allow a table."""
    for number, name in enumerate(KERNEL_NAMES):
        if name in kernels_of(space, rule):
            factors = (rule and rule.cache_factors) or space.cache_factors
            yield from ((name, number, factor) for factor in (factors if name in CACHED_KERNELS else (0.0,)))


def holds_two_batches(tables: tuple[Table, ...], modes: Modes) -> Bools:
    """Modes (M,) not on disk, or whose cache can hold the rows of two batches, as RecSmith's own cache requires.

    The rows of a batch are those expected by the access profile.
    """
    blocks = np.where(np.isin(modes.type, SPLIT_ROWS), modes.coverage, 1)
    rows = Reuse.of(tables).unique_rows(modes.table, modes.lookups) * (blocks / modes.row_spread)
    held = modes.load_factor * np.array([table.num_embeddings for table in tables], dtype=np.float64)[modes.table]
    return (modes.kernel != KEY_VALUE.number) | (2 * rows <= held)


def no_mode(table: Table, limits: KernelLimits, cluster: Cluster, space: Space, rule: TableRule | None) -> str:
    """Why a table has no legal placement, in words."""
    kinds = [kind for kind in SHARDING_TYPES if kind.name in space.types]
    why = sorted({_why_not(kind, table, limits, cluster, space, rule) for kind in kinds})
    of_kernels = [text for text in why if FIX in text]
    if of_kernels:
        return f"table '{table.name}' has no legal placement with {space.words}: {'; '.join(of_kernels)}"
    listed = "; ".join(why)
    return f"table '{table.name}' has no legal placement with {space.words} ({listed}); allow more types or kernels"


def _why_not(
    kind: ShardingType, table: Table, limits: KernelLimits, cluster: Cluster, space: Space, rule: TableRule | None
) -> str:
    """Why a table has no option of a sharding type of the space, in words."""
    if rule and kind.name not in (rule.sharding_types or ()):
        return f"the table's rules leave out {kind.name}"
    refusal = kind.refusal(table, cluster)
    if refusal:
        return refusal
    offered = [each for each in _kernels(space, rule) if each[0] in kind.kernels]
    if not offered:
        return f"{kind.name} runs {', '.join(kind.kernels)}"
    refused = [limits.refusal(table, kind.name, name, factor) for name, _, factor in offered]
    if all(refused):
        return "; ".join(sorted({text for text in refused if text}))
    if {name for name, *_ in offered} == {KEY_VALUE.name} and cluster.device.kind == "cpu":
        return f"no cache factor of {space.cache_factors} has room for the rows of two batches"
    limit = f" and min_width {rule.min_width}" if rule and rule.min_width else ""
    widest = widest_piece(table, cluster)
    pieces = f" into pieces of at most {widest:,}" if widest < table.embedding_dim else ""
    return f"{kind.name} has no split of {table.embedding_dim} columns{pieces} under widths {space.widths}{limit}"


def _fusion_groups(tables: tuple[Table, ...], optimizer: Ints, table: Ints, kind: Ints) -> Ints:
    """Numbers of the groups that TorchRec fuses: by collection, type, data type, pooling, weighted and optimizer.

    Kernels share a group: group_tables of torchrec/distributed/embedding_sharding.py puts tables on the device, in host
    memory and cached into one FBGEMM module, whatever their load factors; only data_parallel is dense.
    """
    looks: dict[tuple[object, ...], int] = {}
    look = np.array(
        [
            looks.setdefault((t.collection, t.data_type, t.pooling, t.weighted, number), len(looks))
            for t, number in zip(tables, optimizer.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    return np.unique(look[table] * len(SHARDING_TYPES) + kind, return_inverse=True)[1].astype(np.int64)
