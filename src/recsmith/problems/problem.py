"""The search problem as arrays, built once: every legal way to lay every table over the cluster.

Legend: T tables (in canonical order), M modes, P pieces, O options, W ranks, H hosts.

    mode    a table with a sharding type and a kernel              (table, type, kernel)
    piece   a column range of a mode, the unit that is placed      (mode, width)
    option  a mode with its columns split into pieces              (mode, up to two (piece, count) pairs)

A plan chooses one option per table and a target (rank, host or the world) for each of its pieces.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems.demand import Demand
from recsmith.problems.space import Constraints, Space, TableRule
from recsmith.problems.widths import Split, column_splits
from recsmith.sharding import KERNELS, SHARDING_TYPES, TYPE_NAMES, WIDTH_STEP, ShardingType
from recsmith.sharding.memory import ACCOUNTINGS, CACHE_LOAD_FACTOR, Bytes, Pieces
from recsmith.workloads import Table, Workload
from recsmith.workloads.workload import ROW_WISE_OPTIMIZERS

NO_PIECE = -1
LARGEST_DIM = 65_536  # columns; splits are searched in steps of 4
LARGEST_TOTAL = 2.0**62  # bytes over all ranks; below it no sum of integers overflows
BYTES_PER_WEIGHT_BYTE, BYTES_PER_ID = 12, 128  # more than any accounting charges


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """Per mode (M,): what one covered rank does a step, and how its rows are cut.

    group: tables that TorchRec fuses into one kernel share it.
    head_rows: rows on each covered rank but the last; tail_rows: on the last.
    """

    table: Ints
    type: Ints
    kernel: Ints
    group: Ints
    coverage: Ints
    span: Ints
    ids: Floats
    bags: Floats
    outputs: Floats
    head_rows: Ints
    tail_rows: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTable:
    """Per piece (P,): mode, width, and bytes on each covered rank but the last (head) and on the last (tail)."""

    mode: Ints
    width: Ints
    head: Bytes
    tail: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Per option (O,), in order of tables: its mode, and up to two (piece, count) pairs, shape (O, 2).

    barred: legal alone, but not beside other tables' options; bounds count them, searches leave them out.
    """

    table: Ints
    mode: Ints
    piece: Ints
    count: Ints
    barred: Bools
    start: Ints  # (T + 1,): the options of table t are start[t] .. start[t + 1]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A workload on a cluster, within a space and under constraints: what planners search and cost models price.

    least_width: the narrowest column piece that the rules allow each table (T,), 0 where they say nothing.
    """

    workload: Workload
    cluster: Cluster
    space: Space
    constraints: Constraints
    tables: tuple[Table, ...]
    demand: Demand
    least_width: Ints
    modes: Modes
    pieces: PieceTable
    options: Options

    @cached_property
    def capacity(self) -> Ints:
        """Device bytes per rank, shape (W,)."""
        return np.array(self.cluster.capacities, dtype=np.int64)

    @cached_property
    def host_capacity(self) -> Ints:
        """Host bytes per host, shape (H,)."""
        return np.full(self.cluster.hosts, self.cluster.ddr_bytes_per_host or 0, dtype=np.int64)

    def memory(self, modes: Ints, widths: Ints) -> tuple[Bytes, Bytes]:
        """(head, tail) bytes of pieces of these modes and widths, in the constraints' accounting."""
        rows = self.modes.head_rows[modes], self.modes.tail_rows[modes]
        return _memory(self, modes, widths, rows[0]), _memory(self, modes, widths, rows[1])

    def find_mode(self, table: int, type_name: str, kernel: str) -> int | None:
        """The mode of a table with this type and kernel, or None where the space has none."""
        wanted = (self.modes.table == table) & (self.modes.kernel == KERNELS.index(kernel))
        kind = next(i for i, candidate in enumerate(SHARDING_TYPES) if candidate.name == type_name)
        found = np.flatnonzero(wanted & (self.modes.type == kind))
        return int(found[0]) if found.size else None


def build_problem(
    workload: Workload, cluster: Cluster, space: Space | None = None, constraints: Constraints | None = None
) -> Problem:
    """The problem of placing a workload on a cluster. Cost: linear in tables times splits; 0.2 s for 2,000 x 128.

    Raises:
        UsageError: a table has no legal placement at all, or a rule or kernel does not fit.
    """
    space, constraints = space or Space(), constraints or Constraints()
    constraints.check_names([table.name for table in workload.tables])
    if cluster.ddr_bytes_per_host is None and any(kernel.startswith("fused_uvm") for kernel in space.kernels):
        raise UsageError("kernels fused_uvm* keep tables in host memory; give the cluster ddr_bytes_per_host")
    rules = {table.name: constraints.rule_for(table.name) for table in workload.tables} if constraints.rules else {}
    tables = canonical_order(workload.tables, rules)
    demand = Demand.of(workload, tables)
    _check_sizes(tables, demand, cluster)
    modes = _build_modes(tables, demand, cluster, space, rules)
    least_width = np.array([(rule.min_width or 0) if (rule := rules.get(table.name)) else 0 for table in tables])
    if constraints.keep_exact and workload.optimizer in ROW_WISE_OPTIMIZERS:
        least_width = demand.dim
    pieces, options = _build_options(tables, demand, modes, cluster, space, least_width)
    bare = next((table for table, count in zip(tables, np.diff(options.start), strict=True) if count == 0), None)
    if bare is not None:
        raise UsageError(_no_mode(bare, cluster, space, rules.get(bare.name)))
    shell = Problem(
        workload=workload, cluster=cluster, space=space, constraints=constraints,
        tables=tables, demand=demand, least_width=least_width, modes=modes, pieces=pieces, options=options,
    )  # fmt: skip
    head, tail = shell.memory(pieces.mode, pieces.width)
    weighed = PieceTable(mode=pieces.mode, width=pieces.width, head=head, tail=tail)
    return replace(shell, pieces=weighed)


def _check_sizes(tables: tuple[Table, ...], demand: Demand, cluster: Cluster) -> None:
    """Refuse what no machine trains, before it overflows: very wide tables, and steps of exabytes."""
    wide = next((table for table in tables if table.embedding_dim > LARGEST_DIM), None)
    if wide is not None:
        raise UsageError(
            f"table '{wide.name}' has embedding_dim {wide.embedding_dim}; at most {LARGEST_DIM:,} can be planned"
        )
    weights = demand.rows.astype(float) * demand.dim * demand.element_bytes
    buffers = cluster.world_size * (demand.ids + demand.bags * demand.dim)
    total = float((weights * BYTES_PER_WEIGHT_BYTE + buffers * BYTES_PER_ID).sum()) * cluster.world_size
    if total > LARGEST_TOTAL:
        largest = tables[int(np.argmax(weights + buffers))]
        raise UsageError(
            f"weights and buffers add up to more than {LARGEST_TOTAL:.0e} bytes, most for table '{largest.name}'; "
            "check its rows, its pooling factors and the batch size"
        )


def canonical_order(tables: tuple[Table, ...], rules: dict[str, TableRule | None]) -> tuple[Table, ...]:
    """Tables by what they are; names decide only between equal ones, so neither order nor names change a plan."""

    def key(table: Table) -> tuple[object, ...]:
        features = sorted((f.pooling_factor, f.num_poolings, f.weighted, f.batch_size or 0) for f in table.features)
        rule = rules.get(table.name)
        limits = (rule.sharding_types, rule.compute_kernels, rule.min_width or 0) if rule else ()
        what = (table.pooling, table.data_type, repr(table.access), table.collection)
        return -table.weight_bytes, table.num_embeddings, features, what, limits, table.name

    return tuple(sorted(tables, key=key))


# --- modes --------------------------------------------------------------------------------------------------------


def _build_modes(
    tables: tuple[Table, ...], demand: Demand, cluster: Cluster, space: Space, rules: dict[str, TableRule | None]
) -> Modes:
    triples = sorted(_legal_triples(tables, cluster, space, rules))
    table, kind, kernel = (np.array(column, dtype=np.int64) for column in zip(*triples, strict=True))
    coverage = np.array([sharding.coverage(cluster) for sharding in SHARDING_TYPES])[kind]
    blocks = np.where(np.array([sharding.splits_rows for sharding in SHARDING_TYPES])[kind], coverage, 1)
    shares = np.array([sharding.lookup_share(cluster) for sharding in SHARDING_TYPES])[kind]
    divisor, multiplier = shares[:, 0], shares[:, 1]
    head = -(-demand.rows[table] // blocks)
    ids = demand.ids[table] / divisor * multiplier
    return Modes(
        table=table, type=kind, kernel=kernel, coverage=coverage, ids=ids,
        group=_fusion_groups(tables, table, kind, kernel),
        span=np.array([int(sharding.span) for sharding in SHARDING_TYPES])[kind],
        bags=np.where(demand.pooled[table], demand.bags[table] * multiplier, ids),
        outputs=np.where(demand.pooled[table], demand.outputs[table] * multiplier, ids),
        head_rows=head,
        tail_rows=demand.rows[table] - (blocks - 1) * head,
    )  # fmt: skip


def _legal_triples(
    tables: tuple[Table, ...], cluster: Cluster, space: Space, rules: dict[str, TableRule | None]
) -> Iterator[tuple[int, int, int]]:
    """(table, type, kernel) of every legal mode; UsageError for a table that has none."""
    kinds = [(i, kind) for i, kind in enumerate(SHARDING_TYPES) if kind.name in space.types]
    for t, table in enumerate(tables):
        if table.embedding_dim % WIDTH_STEP:
            raise UsageError(
                f"table '{table.name}' has embedding_dim {table.embedding_dim}; FBGEMM's kernels need a multiple of "
                f"{WIDTH_STEP}: pad it to {-(-table.embedding_dim // WIDTH_STEP) * WIDTH_STEP}"
            )
        rule = rules.get(table.name)
        found = False
        for i, kind in kinds:
            if (rule and kind.name not in (rule.sharding_types or ())) or kind.refusal(table, cluster):
                continue
            for kernel in kind.kernels:
                if kernel in space.kernels and (rule is None or kernel in (rule.compute_kernels or ())):
                    found = True
                    yield t, i, KERNELS.index(kernel)
        if not found:
            raise UsageError(_no_mode(table, cluster, space, rule))


def _no_mode(table: Table, cluster: Cluster, space: Space, rule: TableRule | None) -> str:
    kinds = [kind for kind in SHARDING_TYPES if kind.name in space.types]
    why = "; ".join(sorted({_why_not(kind, table, cluster, space, rule) for kind in kinds}))
    return (
        f"table '{table.name}' has no legal placement in the space {space.describe()} ({why}); "
        "allow more types or kernels"
    )


def _why_not(kind: ShardingType, table: Table, cluster: Cluster, space: Space, rule: TableRule | None) -> str:
    """Why a table has no option of a sharding type of the space."""
    if rule and kind.name not in (rule.sharding_types or ()):
        return f"the table's rules leave out {kind.name}"
    refusal = kind.refusal(table, cluster)
    if refusal:
        return refusal
    kernels = set(space.kernels) & set(rule.compute_kernels or () if rule else space.kernels)
    if not kernels & set(kind.kernels):
        return f"{kind.name} runs {', '.join(kind.kernels)}"
    limit = f" and min_width {rule.min_width}" if rule and rule.min_width else ""
    return f"{kind.name} has no split of {table.embedding_dim} columns under widths {space.widths}{limit}"


def _fusion_groups(tables: tuple[Table, ...], table: Ints, kind: Ints, kernel: Ints) -> Ints:
    """Numbers the groups that TorchRec fuses: collection, type, data type, pooling, weighted, kernel."""
    looks: dict[tuple[object, ...], int] = {}
    look = np.array(
        [looks.setdefault((t.collection, t.data_type, t.pooling, t.weighted), len(looks)) for t in tables],
        dtype=np.int64,
    )
    keys = (look[table] * len(SHARDING_TYPES) + kind) * len(KERNELS) + kernel
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


# --- pieces and options -------------------------------------------------------------------------------------------


def _build_options(
    tables: tuple[Table, ...], demand: Demand, modes: Modes, cluster: Cluster, space: Space, least_width: Ints
) -> tuple[PieceTable, Options]:
    """All options, family by family: modes of one type, dim and rule are split alike, so they are built together."""
    families = _families(demand, modes, least_width)
    none = np.zeros(0, dtype=np.int64)
    piece_mode, piece_width = [none], [none]
    columns = [np.zeros((6, 0), dtype=np.int64)]  # rows (mode, split number, piece 1, count 1, piece 2, count 2)
    made = 0
    for (kind, min_width), members in families:
        sharding = SHARDING_TYPES[kind]
        splits = _splits(sharding, tables[modes.table[members[0]]], cluster, space, min_width)
        widths = sorted({width for split in splits for width, _ in split})
        if not splits:
            continue
        first = made + np.arange(len(members)) * len(widths)
        piece_mode.append(np.repeat(members, len(widths)))
        piece_width.append(np.tile(np.array(widths, dtype=np.int64), len(members)))
        made += len(members) * len(widths)
        for number, split in enumerate(splits):
            pairs = [(first + widths.index(width), np.full(len(members), count)) for width, count in split]
            pairs += [(np.full(len(members), NO_PIECE), np.zeros(len(members), dtype=np.int64))] * (2 - len(pairs))
            columns.append(np.stack([members, np.full(len(members), number), *pairs[0], *pairs[1]]))
    rows = np.concatenate(columns, axis=1)
    order = np.lexsort((rows[1], rows[0]))  # modes are in order of tables
    mode, _, piece1, count1, piece2, count2 = rows[:, order]
    table = modes.table[mode]
    start = np.searchsorted(table, np.arange(len(tables) + 1))
    nothing = Bytes(none, none)
    pieces = PieceTable(mode=np.concatenate(piece_mode), width=np.concatenate(piece_width), head=nothing, tail=nothing)
    piece, count = np.stack([piece1, piece2], axis=1), np.stack([count1, count2], axis=1)
    barred = _barred(tables, modes.type[mode], table, pieces.width[piece1])
    return pieces, Options(table=table, mode=mode, piece=piece, count=count, barred=barred, start=start)


def _barred(tables: tuple[Table, ...], kind: Ints, table: Ints, width: Ints) -> Bools:
    """Column-wise options of sequence tables that TorchRec cannot run beside others: one width per collection.

    Searches choose for each table alone, so of each collection only one width stays open: that of its first table.
    """
    barred = np.zeros(len(kind), dtype=bool)
    kept: dict[str, int] = {}
    sequence = np.array([not each.pooled for each in tables])[table]
    for i in np.flatnonzero(sequence & (kind == TYPE_NAMES.index("column_wise"))).tolist():
        collection = tables[int(table[i])].collection
        barred[i] = kept.setdefault(collection, int(width[i])) != int(width[i])
    return barred


def _families(demand: Demand, modes: Modes, least_width: Ints) -> list[tuple[tuple[int, int | None], Ints]]:
    """((type, min_width), modes) for each set of modes whose columns split alike: one dim, pooled or not."""
    keys = np.stack([modes.type, least_width[modes.table], demand.dim[modes.table], demand.pooled[modes.table]])
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    names = [(int(kind), int(limit) or None) for kind, limit, *_ in unique.T]
    return list(zip(names, members, strict=True))


def _splits(
    sharding: ShardingType, table: Table, cluster: Cluster, space: Space, min_width: int | None
) -> tuple[Split, ...]:
    """Splits of a table's columns that a search tries.

    All column-wise sequence tables of a collection must share one width in TorchRec, so theirs is TorchRec's own.
    """
    if not sharding.splits_columns:
        return (((table.embedding_dim, 1),),)
    least, most = sharding.column_counts(table, cluster)
    rule = space.widths if table.pooled else "torchrec"
    return column_splits(table.embedding_dim, least, most, rule, min_width, sharding.equal_widths(table, cluster))


def _memory(problem: Problem, modes: Ints, widths: Ints, rows: Ints) -> Bytes:
    demand, table = problem.demand, problem.modes.table[modes]
    kind, kernel = problem.modes.type[modes], problem.modes.kernel[modes]
    split_rows = np.isin(kind, [i for i, sharding in enumerate(SHARDING_TYPES) if sharding.splits_rows])
    on_cpu = problem.cluster.device.kind == "cpu"
    pieces = Pieces(
        rows=rows, width=widths, table_rows=demand.rows[table], table_dim=demand.dim[table],
        element_bytes=demand.element_bytes[table], ids=problem.modes.ids[modes], bags=problem.modes.bags[modes],
        outputs=problem.modes.outputs[modes], weighted=demand.weighted[table], int8=demand.int8[table],
        data_parallel=kind == TYPE_NAMES.index("data_parallel"), kernel=kernel,
        cache_load_factor=np.full(np.shape(modes), CACHE_LOAD_FACTOR),
        on_cpu=on_cpu, sequence=~demand.pooled[table], mean=demand.mean[table],
        gathered=split_rows & demand.pooled[table],
    )  # fmt: skip
    workload, accounting = problem.workload, problem.constraints.memory
    plain = accounting == "torchrec" and on_cpu  # TorchRec counts no pipeline there
    return ACCOUNTINGS[accounting](pieces, workload.optimizer, "none" if plain else workload.pipeline, KERNELS)


__all__ = [
    "NO_PIECE",
    "Modes",
    "Options",
    "PieceTable",
    "Problem",
    "build_problem",
    "canonical_order",
]
