"""The search problem as arrays, built once: every legal option to shard every table over the cluster.

Legend: T tables (in canonical order), M modes, P pieces, O options, W ranks, H hosts.

    mode    a table with a sharding type and a kernel              (table, type, kernel, cache factor)
    piece   a column range of a mode, the unit that is placed      (mode, width)
    option  a mode with its columns split into pieces              (mode, up to two (piece, count) pairs)

A plan chooses one option per table and a target (rank, host or the world) for each of its pieces.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.plans.plan import CachePolicy
from recsmith.problems.barred_options import barred_options, beside_partners, fits_alone, other_openings
from recsmith.problems.constraints import Constraints, RulesByTable, constraint_key
from recsmith.problems.legality import Legality
from recsmith.problems.memory import MemoryModel, kept_modes
from recsmith.problems.modes import Demand, Modes, Rules, build_modes, holds_two_batches, no_mode
from recsmith.problems.options import Options, PieceTable, build_options
from recsmith.problems.plain_reserve import with_reserve
from recsmith.problems.space import LARGEST_WIDTH, NoChoiceLeft, Space, opened_space, types_of
from recsmith.problems.table_limits import NO_LIMITS, TableLimits
from recsmith.sharding import CACHED_KERNELS, HOST_KERNELS, KERNEL_NAMES, TYPE_NAMES, widest_piece
from recsmith.sharding.kernel_limits import ROW_SUMS, KernelLimits
from recsmith.sharding.memory import CACHE_LOAD_FACTOR, Bytes
from recsmith.sharding.on_disk import check_disk
from recsmith.workloads import AccessProfile, Table, Workload
from recsmith.workloads.optimizers import OPTIMIZERS, SYNCED_OPTIMIZERS

LARGEST_DIM = LARGEST_WIDTH  # columns: bounds the search over splits, in steps of 4; not a limit of TorchRec
LARGEST_TOTAL = 2.0**62  # bytes of all tables on a host, and of one table on all ranks: sums stay in int64
BYTES_PER_WEIGHT_BYTE, BYTES_PER_ID = 12, 128  # more than any accounting counts


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A workload on a cluster, within a space and under constraints: what planners search and cost models price.

    least_width: the narrowest column piece that the rules allow each table (T,), 0 without such a rule.
    legality: all other constraints.
    opened: the space with the kernels that rules name for their tables.
    """

    workload: Workload
    cluster: Cluster
    space: Space
    opened: Space
    constraints: Constraints
    tables: tuple[Table, ...]
    demand: Demand
    least_width: Ints
    modes: Modes
    pieces: PieceTable
    options: Options
    legality: Legality

    @cached_property
    def capacity(self) -> Ints:
        """Device bytes per rank, shape (W,)."""
        return np.array(self.cluster.capacities, dtype=np.int64)

    @cached_property
    def host_capacity(self) -> Ints:
        """Bytes per host for tables outside device memory, shape (H,): of the host's memory, or of its disk."""
        return np.full(self.cluster.hosts, bytes_beneath(self.cluster, self.opened), dtype=np.int64)

    @cached_property
    def planned_space(self) -> Space:
        """The space with only those cache factors that some table can have on this cluster, for messages."""
        held = set(self.modes.load_factor.tolist())
        factors = tuple(each for each in self.space.cache_factors if each in held)
        return replace(self.space, cache_factors=factors) if factors else self.space

    @cached_property
    def memory_model(self) -> MemoryModel:
        """The model that computes the bytes of pieces."""
        return MemoryModel.of(self.workload, self.cluster, self.constraints, self.demand, self.modes, self.tables)

    def memory(self, modes: Ints, widths: Ints) -> tuple[Bytes, Bytes]:
        """(head, tail) bytes of pieces of these modes and widths, in the constraints' accounting, for searches."""
        return self.memory_model.bytes_of(modes, widths)

    def least_memory(self, modes: Ints, widths: Ints) -> tuple[Bytes, Bytes]:
        """The same bytes if no wider table shares the caches: a lower bound for these pieces in any plan."""
        return self.memory_model.bytes_of(modes, widths, alone=True)

    def fits_alone(self, modes: Ints, head: Bytes, tail: Bytes) -> Bools:
        """Whether pieces with these modes and bytes fit on some target of the empty cluster."""
        return fits_alone(self.cluster, bytes_beneath(self.cluster, self.opened), self.modes.span[modes], head, tail)

    def allowed(self, modes: Ints, widths: Ints) -> Bools:
        """Whether rules and kernels allow pieces (N,) of these widths, for modes whose columns may be split freely."""
        table = self.modes.table[modes]
        narrowest = np.minimum(self.least_width, self.demand.dim)[table]
        return (widths >= narrowest) & (widths <= self.widest[table])

    @cached_property
    def widest(self) -> Ints:
        """Columns (T,) of the widest piece of each table that kernels support."""
        return np.array([widest_piece(table, self.cluster) for table in self.tables], dtype=np.int64)

    def other_openings(self) -> Iterator[Bools]:
        """Barred options (O,) if other widths of column-wise sequences are open than those of `options`."""
        return other_openings(self.tables, self.modes, self.pieces, self.options)

    @cached_property
    def mode_of(self) -> dict[tuple[int, int, int, float], int]:
        """Modes by (table, type, kernel, cache factor)."""
        modes = self.modes
        columns = (modes.table, modes.type, modes.kernel, modes.load_factor)
        keys = zip(*(column.tolist() for column in columns), strict=True)
        return {key: mode for mode, key in enumerate(keys)}

    def cache_policy(self, mode: int) -> CachePolicy:
        """The policy of a mode's cache: which rows it keeps."""
        return "static" if self.modes.static[mode] else "lru"

    def find_mode(self, table: int, type_name: str, kernel: str, load_factor: float | None = None) -> int | None:
        """The mode of a table with this type, kernel and cache factor, or None if the space has none.

        load_factor: for fused_uvm_caching and key_value, where None is FBGEMM's default.
        """
        factor = (CACHE_LOAD_FACTOR if load_factor is None else load_factor) if kernel in CACHED_KERNELS else 0.0
        return self.mode_of.get((table, TYPE_NAMES.index(type_name), KERNEL_NAMES.index(kernel), factor))


def build_problem(
    workload: Workload,
    cluster: Cluster,
    space: Space | None = None,
    constraints: Constraints | None = None,
    *,
    needless: bool = False,
    by_rows: Collection[str] = (),
) -> Problem:
    """The problem of placing a workload on a cluster. Time: linear in tables times splits; 0.2 s for 2,000 x 128.

    If a cluster states neither memory nor reserve, `plain_reserve` is kept free.

    needless: include caches that save no memory or are too small, so that every plan of the space can be priced.
    by_rows: tables that are row_wise or table_row_wise in a plan to be priced; tables without other types are added.

    Raises:
        UsageError: a table has no legal placement alone, or none next to others; a rule or kernel does not fit; or
            replicas could not be synchronised.
    """
    space, constraints, cluster = space or Space(), constraints or Constraints(), with_reserve(workload, cluster)
    names = [table.name for table in workload.tables]
    constraints = constraints.matching(names)
    constraints.check_names(names)
    by_table = RulesByTable(constraints.rules)
    rules = {name: by_table.merged(name) for name in names} if constraints.rules else {}
    by_rows = {*by_rows, *(name for name in names if {*types_of(space, rules.get(name))} <= {*ROW_SUMS})}
    opened, kernels = opened_space(space, rules), KernelLimits.of(workload, cluster, by_rows)
    check_replicated(workload, cluster, opened)
    _check_beneath(workload, cluster, opened, constraints)
    tables = canonical_order(workload.tables, rules, constraints)
    limits = TableLimits.of(constraints, tables, rules, cluster)
    demand = Demand.of(workload, tables)
    _check_sizes(tables, demand, cluster)
    modes = build_modes(tables, demand, kernels, cluster, space, rules, workload.hot_rows)
    if opened.has_caches and not needless:
        memory = MemoryModel.of(workload, cluster, constraints, demand, modes, tables)
        modes = kept_modes(modes, _useful_caches(tables, memory, cluster) | np.isin(modes.table, limits.pinned))
    if limits is not NO_LIMITS:
        modes = kept_modes(modes, limits.modes(modes.table, modes.coverage))
    _check_choice(np.bincount(modes.table, minlength=len(tables)), tables, kernels, cluster, space, rules, limits)
    least_width = np.array([(rule.min_width or 0) if (rule := rules.get(table.name)) else 0 for table in tables])
    if constraints.keep_exact:
        row_wise = np.array([OPTIMIZERS[workload.optimizer_of(table)].is_row_wise for table in tables])
        least_width = np.where(row_wise, demand.dim, least_width)
    pieces, options = build_options(tables, demand, modes, cluster, space, least_width, limits.splits)
    _check_choice(np.diff(options.start), tables, kernels, cluster, space, rules, limits)
    legality = Legality.of(constraints, limits, tables, cluster, modes.table, modes.coverage)
    shell = Problem(
        workload=workload, cluster=cluster, space=space, opened=opened, constraints=constraints,
        tables=tables, demand=demand, least_width=least_width, modes=modes, pieces=pieces, options=options,
        legality=legality,
    )  # fmt: skip
    head, tail = shell.memory(pieces.mode, pieces.width)
    pieces = replace(pieces, head=head, tail=tail)
    alone = shell.fits_alone(pieces.mode, head, tail)
    options = replace(options, barred=barred_options(tables, cluster, modes, pieces, options, least_width, alone))
    beside = beside_partners(legality, cluster, modes, pieces, options, alone)
    options = replace(options, barred=options.barred | beside | shell.memory_model.uncached[options.mode])
    return replace(shell, pieces=pieces, options=options)


def _useful_caches(tables: tuple[Table, ...], memory: MemoryModel, cluster: Cluster) -> Bools:
    """Modes (M,) without a cache, or whose cache saves memory and, for RecSmith's own on CPU, holds two batches."""
    useful = ~memory.needless_caches()
    return useful & holds_two_batches(tables, memory.modes) if cluster.device.kind == "cpu" else useful


def _check_choice(
    count: Ints, tables: tuple[Table, ...], kernels: KernelLimits, cluster: Cluster, space: Space, rules: Rules,
    limits: TableLimits,
) -> None:  # fmt: skip
    """Refuse a table without any mode or option left. count (T,): number of its modes or options."""
    bare = next((t for t, left in enumerate(count.tolist()) if left == 0), None)
    if bare is None:
        return
    table, split = tables[bare], limits.splits.get(bare)
    if limits.open is None and (split is None or not split.given):
        raise NoChoiceLeft(no_mode(table, kernels, cluster, space, rules.get(table.name)))
    raise NoChoiceLeft(
        f"table '{table.name}' has no legal placement with {space.words} on the ranks and in the shards "
        "that its rules leave it; relax one of them"
    )


def _check_sizes(tables: tuple[Table, ...], demand: Demand, cluster: Cluster) -> None:
    """Refuse problems that no machine trains, before they overflow: very wide tables, and steps of exabytes."""
    wide = next((table for table in tables if table.embedding_dim > LARGEST_DIM), None)
    if wide is not None:
        raise UsageError(
            f"table '{wide.name}' has embedding_dim {wide.embedding_dim}; at most {LARGEST_DIM:,} can be planned"
        )
    weights = demand.rows.astype(float) * demand.dim * demand.element_bytes
    buffers = cluster.world_size * (demand.ids + demand.bags * demand.dim)
    size = weights * BYTES_PER_WEIGHT_BYTE + buffers * BYTES_PER_ID
    on_host, everywhere = float(size.sum()) * cluster.local_world_size, float(size.max()) * cluster.world_size
    if max(on_host, everywhere) > LARGEST_TOTAL:
        largest = tables[int(np.argmax(weights + buffers))]
        raise UsageError(
            f"weights and buffers add up to more than {LARGEST_TOTAL:.0e} bytes, most for table '{largest.name}'; "
            "check its rows, its pooling factors and the batch size"
        )


def _access_key(access: AccessProfile | None) -> str:
    """A text by which access profiles are ordered."""
    if access is None:
        return "None"
    key = f"AccessProfile(zipf={access.zipf}, reuse_bins={access.reuse_bins}, {access.lookups}, {access.unique_rows})"
    where = (access.hot_rows, access.block_lookups, access.block_unique_rows, access.busiest_lookups)
    if access.busiest_deviation is not None:
        where = (*where, access.busiest_deviation)
    return key if where == (None,) * len(where) else f"{key}, {where}"


def canonical_order(
    tables: tuple[Table, ...], rules: Rules, constraints: Constraints | None = None
) -> tuple[Table, ...]:
    """Tables ordered by their properties; names decide only between equal ones, so order and names change no plan."""
    bound = constraints if constraints and (constraints.rules or constraints.between) else None
    by_table = RulesByTable(bound.rules if bound else ())

    def key(table: Table) -> tuple[object, ...]:
        features = sorted((f.pooling_factor, f.num_poolings, f.weighted, f.batch_size or 0) for f in table.features)
        rule = rules.get(table.name)
        limits = (
            (rule.sharding_types, rule.compute_kernels or KERNEL_NAMES, rule.min_width or 0, rule.cache_factors or ())
            if rule
            else ()
        )
        dynamic = () if table.dynamic is None else (table.dynamic.admit, table.dynamic.evict)
        what = (table.pooling, table.data_type, _access_key(table.access), table.collection, dynamic)
        what = what if table.optimizer is None else (*what, table.optimizer)
        name = table.name
        constrained = "" if bound is None else constraint_key(bound, by_table.of(name), name)
        return -table.weight_bytes, table.num_embeddings, features, what, limits, constrained, name

    return tuple(sorted(tables, key=key))


def bytes_beneath(cluster: Cluster, space: Space) -> int:
    """Bytes of a host for tables outside device memory."""
    return (cluster.ssd_bytes_per_host if space.on_disk else cluster.ddr_bytes_per_host) or 0


def _check_beneath(workload: Workload, cluster: Cluster, space: Space, constraints: Constraints) -> None:
    """Refuse tables outside device memory if the cluster has no such memory, or nothing can run them there."""
    if cluster.ddr_bytes_per_host is None and set(space.kernels) & set(HOST_KERNELS):
        raise UsageError("kernels fused_uvm* keep tables in host memory; give the cluster ddr_bytes_per_host")
    if space.on_disk:
        check_disk(workload, cluster, constraints.memory, static=space.cache_policy == "static")


def check_replicated(workload: Workload, cluster: Cluster, space: Space) -> None:
    """Refuse a workload or space on a cluster with replicas that TorchRec could not synchronise.

    Raises:
        UsageError: an optimizer has other state than TorchRec syncs, or a cache has rows that the sync misses.
    """
    if cluster.replication is None:
        return
    _check_fully_sharded(cluster, space)
    odd = next((name for name in workload.optimizers if name not in SYNCED_OPTIMIZERS), None)
    if odd is not None:
        raise UsageError(
            f"optimizer {odd} in a 2D job: TorchRec's DMPCollection synchronises no state but Adagrad's"
            f"; take {', '.join(SYNCED_OPTIMIZERS)}, or one sharding group"
        )
    if space.has_caches:
        cached = next(name for name in CACHED_KERNELS if name in space.kernels)
        raise UsageError(
            f"kernel {cached} in a 2D job: TorchRec's DMPCollection averages no rows in caches and none on disk, so "
            "replicas drift apart; leave the kernel out, or plan for one sharding group"
        )


def _check_fully_sharded(cluster: Cluster, space: Space) -> None:
    """Refuse kernels and devices that TorchRec's fully sharded replicas do not support."""
    if not cluster.fully_sharded:
        return
    if cluster.device.kind == "cpu":
        raise UsageError("fully sharded replicas of TorchRec 1.8 need CUDA streams; leave them out on CPU")
    beneath = next((name for name in space.kernels if name in HOST_KERNELS), None)
    if beneath is not None:
        raise UsageError(
            f"kernel {beneath} in a job whose replicas are fully sharded: TorchRec averages weights on the device "
            "alone, so replicas drift apart; leave the kernel out, or the sharding of replicas"
        )
