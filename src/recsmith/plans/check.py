"""Checks whether placements can be run: every table once, by TorchRec's rules."""

from collections.abc import Sequence

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.files import did_you_mean
from recsmith.plans.plan import Placement, Plan
from recsmith.sharding import CACHED_KERNELS, FUSED, KEY_VALUE, TYPE_NAMES, Shard
from recsmith.sharding.kernel_limits import ROW_SUMS, KernelLimits, collection_words, uneven_collections
from recsmith.sharding.on_disk import static_refused
from recsmith.units import counted
from recsmith.workloads import Table, Workload


def check_placements(placements: Sequence[Placement], workload: Workload, cluster: Cluster) -> None:
    """Raise PlanMismatch for placements that miss or repeat a table, or that TorchRec cannot run."""
    tables = {table.name: table for table in workload.tables}
    limits = KernelLimits.of(workload, cluster, tables_by_rows(placements))
    seen: set[str] = set()
    for placement in placements:
        if placement.table not in tables:
            hint = did_you_mean(placement.table, list(tables)[:1000])
            raise PlanMismatch(f"table '{placement.table}' is placed but not in the workload{hint}")
        if placement.table in seen:
            raise PlanMismatch(f"table '{placement.table}' is placed twice; place it once")
        seen.add(placement.table)
        check_placement(placement, tables[placement.table], cluster)
        _check_kernel(placement, tables[placement.table], limits)
    _check_policies(placements)
    _check_sequence_widths(placements, tables)
    missing = [name for name in tables if name not in seen]
    if missing:
        raise PlanMismatch(
            f"{counted(len(missing), 'table')} without a place, the first is '{missing[0]}'; place every table"
        )


def tables_by_rows(placements: Sequence[Placement]) -> frozenset[str]:
    """Names of the tables whose ranks each pool their own rows and add up the results."""
    return frozenset(each.table for each in placements if each.sharding_type in ROW_SUMS)


def check_placement(placement: Placement, table: Table, cluster: Cluster) -> None:
    """Raise PlanMismatch for a placement that TorchRec cannot run, whatever the other tables are."""
    if placement.sharding_type not in TYPE_NAMES:
        hint = did_you_mean(placement.sharding_type, list(TYPE_NAMES))
        raise PlanMismatch(f"table '{table.name}' has sharding_type '{placement.sharding_type}'{hint}")
    kind = placement.kind
    if placement.compute_kernel not in kind.kernels:
        raise PlanMismatch(
            f"table '{table.name}' ({kind.name}) has compute_kernel '{placement.compute_kernel}'; "
            f"{kind.name} runs {', '.join(kind.kernels)}"
        )
    refusal = static_refused(placement.compute_kernel, cluster) if placement.cache_policy == "static" else None
    if refusal is not None:
        raise PlanMismatch(f"table '{table.name}': {refusal}")
    if placement.cache is not None and placement.compute_kernel not in CACHED_KERNELS:
        raise PlanMismatch(
            f"table '{table.name}' has cache parameters but kernel {placement.compute_kernel} has no cache"
        )
    _check_stash(placement, cluster)
    kind.check(table, placement.ranks, placement.widths_of(table.embedding_dim), cluster)


def _check_stash(placement: Placement, cluster: Cluster) -> None:
    """Refuse stashing of tables that are not fused, and of optimizer state on CUDA, where FBGEMM keeps it."""
    if placement.stash is None:
        return
    if placement.compute_kernel != FUSED.name:
        raise PlanMismatch(
            f"table '{placement.table}' has stash: {placement.stash} and kernel {placement.compute_kernel}; only "
            f"{FUSED.name} tables are on the device and can rest elsewhere"
        )
    if placement.stash != "weights" and cluster.device.kind == "cuda":
        raise PlanMismatch(
            f"table '{placement.table}' has stash: {placement.stash}; TorchRec 1.8 moves weights of tables alone on "
            "CUDA: write stash: weights"
        )


def _check_kernel(placement: Placement, table: Table, limits: KernelLimits) -> None:
    """Refuse a kernel that cannot train the table in this workload."""
    factor = placement.load_factor if placement.compute_kernel in CACHED_KERNELS else 0.0
    refusal = limits.refusal(table, placement.sharding_type, placement.compute_kernel, factor)
    if refusal is not None:
        raise PlanMismatch(f"table '{table.name}' ({placement.sharding_type}, {placement.compute_kernel}): {refusal}")


def _check_policies(placements: Sequence[Placement]) -> None:
    """Refuse different cache policies of tables on disk, which no search returns and no cost model prices."""
    first: dict[str, str] = {}
    for placement in placements:
        if placement.compute_kernel == KEY_VALUE.name:
            first.setdefault(placement.cache_policy, placement.table)
    if len(first) > 1:
        raise PlanMismatch(
            f"the cache of table '{first['lru']}' has policy lru, and that of '{first['static']}' static; give all "
            "tables on disk one policy"
        )


def _check_sequence_widths(placements: Sequence[Placement], tables: dict[str, Table]) -> None:
    """Refuse different widths of column-wise tables in one EmbeddingCollection, which TorchRec does not report."""
    width_of: dict[str, tuple[int, str]] = {}
    for placement in placements:
        table = tables[placement.table]
        if table.pooled or placement.sharding_type != "column_wise":
            continue
        width = placement.widths_of(table.embedding_dim)[0]
        first, name = width_of.setdefault(table.collection, (width, table.name))
        if width != first:
            raise PlanMismatch(
                f"sequence tables '{name}' and '{table.name}' of {collection_words(table)} are column_wise with "
                f"widths {first} and {width}; TorchRec runs one width per collection"
            )


def check_shards(found: Sequence[Shard], derived: Sequence[Shard], tables: Sequence[Table]) -> None:
    """Raise PlanMismatch, naming the first, for shards of a file that differ from those of its placements."""
    if tuple(found) == tuple(derived):
        return
    by_table: dict[str, tuple[list[Shard], list[Shard]]] = {table.name: ([], []) for table in tables}
    for side, shards in enumerate((found, derived)):
        for shard in shards:
            if shard.table not in by_table:
                raise PlanMismatch(f"shards name table '{shard.table}', which the workload does not have")
            by_table[shard.table][side].append(shard)
    for name, (given, expected) in by_table.items():
        if len(given) == len(expected) and set(given) == set(expected):
            continue  # equal except for their order
        odd = next((shard for shard in given if shard not in expected), None)
        lost = next((shard for shard in expected if shard not in given), None)
        what = f"its shards list {_shown(odd)}" if odd else "its shards leave a hole" if lost else "its shards overlap"
        instead = f"; the placement gives {_shown(lost)}" if lost else ""
        raise PlanMismatch(
            f"table '{name}': {what}{instead}. Mend the placement and delete `shards` (they are derived), or plan again"
        )
    raise PlanMismatch("shards stand in another order than their placements; delete `shards`, they are derived")


def _shown(shard: Shard) -> str:
    return f"rank {shard.rank} rows {list(shard.rows)} columns {list(shard.columns)}"


def check_uneven_on_cpu(plan: Plan) -> None:
    """Raise PlanMismatch for a plan that FBGEMM's CPU kernels cannot train: they would stop in the first step.

    TorchRec gives tables of different poolings or data types on a rank one kernel each. If batch sizes vary, all
    kernels of a sharding type write into one output, and CPU kernels do not accept an existing output.
    """
    uneven = uneven_collections(plan.workload) if plan.cluster.device.kind == "cpu" else frozenset[str]()
    tables = {table.name: table for table in plan.workload.tables}
    first: dict[tuple[str, str, int], Table] = {}
    for placement in plan.placements if uneven else ():
        table, kind = tables[placement.table], placement.sharding_type
        if not table.pooled or table.collection not in uneven or kind == "data_parallel":
            continue
        for rank in placement.ranks:
            other = first.setdefault((table.collection, kind, rank), table)
            if (other.pooling, other.data_type) != (table.pooling, table.data_type):
                raise PlanMismatch(
                    f"{collection_words(table)} has features of several batch sizes, and rank {rank} holds "
                    f"'{other.name}' ({other.pooling}, {other.data_type}) and '{table.name}' ({table.pooling}, "
                    f"{table.data_type}) of it, both {kind}, which FBGEMM does not train on cpu; give one another "
                    "sharding type by a rule, or a collection of its own, or train on GPUs"
                )


def check_one_optimizer(plan: Plan) -> None:
    """Raise UsageError if a table of a plan has its own optimizer, for measurements that use one optimizer for all."""
    odd = next(
        (table for table in plan.workload.tables if table.optimizer not in (None, plan.workload.optimizer)), None
    )
    if odd is not None:
        raise UsageError(
            f"table '{odd.name}' has optimizer {odd.optimizer}, and the workload {plan.workload.optimizer}; kernels "
            "are measured under one optimizer: leave the table's out, or verify the plan by a job"
        )
