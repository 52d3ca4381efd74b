"""What the kernels of FBGEMM 1.8 and TorchRec 1.8 support: data types, optimizers, means, batch sizes, caches.

This is the only module that knows these limits: searches leave out what is refused here, and placements read from files
are checked by the same rules (plans/check.py). `tests/jobs/test_kernel_limits.py` compares with the libraries' own
functions.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recsmith.clusters import Cluster
from recsmith.sharding.base import DENSE, KEY_VALUE
from recsmith.sharding.memory import CACHE_LOAD_FACTOR
from recsmith.sharding.on_disk import Kind, stays_in_memory
from recsmith.workloads import Table, Workload
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

FIX = "; take "  # comes before the remedy in every refusal

TRAINED_TYPES = (
    "fp32",
    "fp16",
)  # emb_t in include/fbgemm_gpu/utils/dispatch_macros.h, and FBGEMM_DISPATCH_FLOAT_AND_HALF in
# embedding_forward_split_cpu.cpp; on CUDA `_apply_cache_state` refuses other types when a module is made, cached or not
VARYING_OPTIMIZERS = ("sgd", "rowwise_adagrad", "adam")  # by `_generate_vbe_metadata` for tables in memory
# policies of the module that maps ids to rows on CUDA: torchrec/modules/mc_modules.py
MANAGED_EVICTIONS = ("lfu", "lru")
VARYING_ON_DISK = ("sgd", "rowwise_adagrad")  # the same rule in tbe/ssd/training.py
# types whose ranks add up partial sums, so that TorchRec divides by counts afterwards
ROW_SUMS = ("row_wise", "table_row_wise")


def collection_words(table: Table) -> str:
    """The collection of a table, as text for messages."""
    return f"collection '{table.collection}'" if table.collection else "the collection without a name"


def varying_collections(workload: Workload) -> frozenset[str]:
    """Collections with a feature whose batch size differs from the job's: TorchRec runs all their tables as VBE."""
    return frozenset(
        table.collection
        for table in workload.tables
        if any(feature.batch_size not in (None, workload.batch_size) for feature in table.features)
    )


def uneven_collections(workload: Workload) -> frozenset[str]:
    """Collections whose features have several batch sizes; with a single size, a job may use a plain batch."""
    sizes: dict[str, set[int]] = {}
    for table in workload.tables:
        found = sizes.setdefault(table.collection, set())
        found |= {feature.batch_size or workload.batch_size for feature in table.features}
    return frozenset(name for name, found in sizes.items() if len(found) > 1)


def wrongly_divided(workload: Workload, kind: Kind, by_rows: Collection[str] = ()) -> frozenset[str]:
    """Collections in which a mean-pooled table must not be split by rows, because other tables would be divided too.

    If one mean-pooled table is row_wise or table_row_wise, TorchRec divides all outputs of its collection by numbers of
    ids, except for sums that are also split by rows (`_create_mean_pooling_divisor` of embeddingbag.py, 1.8). So a
    mean-pooled table may be split by rows if it is alone in its collection, or if all tables of it are split by rows,
    unless a feature is read by both a mean and a sum.

    by_rows: tables that are split by rows in any case; tables whose ids are remapped on CUDA are, too.
    """
    by_collection: dict[str, list[Table]] = {}
    for table in workload.tables:
        if table.pooled:
            by_collection.setdefault(table.collection, []).append(table)
    return frozenset(
        name
        for name, tables in by_collection.items()
        if len(tables) > 1
        and any(table.pooling == "mean" for table in tables)
        and (_read_by_both(tables) or not all(each.name in by_rows or _is_remapped(each, kind) for each in tables))
    )


def _is_remapped(table: Table, kind: Kind) -> bool:
    """Whether TorchRec remaps the ids of a table to rows, for which the table is split by rows."""
    return kind == "cuda" and table.dynamic is not None


def _read_by_both(tables: Sequence[Table]) -> bool:
    """Whether a feature is read by both a mean-pooled and a sum-pooled table."""
    means, sums = (
        {feature.name for table in tables if (table.pooling == "mean") == mean for feature in table.features}
        for mean in (True, False)
    )
    return bool(means & sums)


@dataclass(frozen=True)
class KernelLimits:
    """The limits of kernels on a kind of device; optimizer: for tables without their own.

    varying: collections with features whose batch size differs from the job's.
    uneven, divided: the collections of `uneven_collections` and `wrongly_divided`.
    """

    kind: Kind
    optimizer: str
    varying: frozenset[str]
    uneven: frozenset[str] = frozenset()
    divided: frozenset[str] = frozenset()

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, by_rows: Collection[str] = ()) -> "KernelLimits":
        """The limits of a workload's kernels on a cluster's devices. by_rows: tables that are split by rows."""
        kind, varying = cluster.device.kind, varying_collections(workload)
        divided = wrongly_divided(workload, kind, by_rows)
        return cls(kind, workload.optimizer, varying, uneven_collections(workload), divided)

    def refusal(self, table: Table, sharding_type: str, kernel: str, load_factor: float = 0.0) -> str | None:
        """Why a kernel of a sharding type cannot train a table, with the remedy; None if it can.

        load_factor: share of the rows in the kernel's cache; 0 without a cache.
        """
        if table.data_type not in TRAINED_TYPES:
            return f"FBGEMM trains tables in {' or '.join(TRAINED_TYPES)}, not {table.data_type}; take one of them"
        if table.dynamic is not None and self.kind == "cuda" and (why := _managed_refused(table, sharding_type)):
            return why
        if table.pooling == "mean" and (why := self._mean_refused(table, sharding_type)):
            return why
        varying = table.pooled and table.collection in self.varying
        if varying and sharding_type == "grid_shard":
            return (
                f"grid_shard does not run features with a batch_size of their own, as {collection_words(table)} "
                "has; take another sharding type"
            )
        if kernel == DENSE.name:
            return self._of_copies(table)
        if kernel == KEY_VALUE.name and self.kind == "cuda":
            return self._on_disk(table, varying, load_factor)
        if kernel == KEY_VALUE.name:
            return stays_in_memory(table, self.kind)
        return self._of_fused(table, varying)

    def _mean_refused(self, table: Table, sharding_type: str) -> str | None:
        if sharding_type == "grid_shard":
            return f"grid_shard adds up the means of ranks, and pooling is mean{FIX}another sharding type"
        if sharding_type in ROW_SUMS and table.collection in self.divided:
            return (
                f"where a table with pooling mean is {sharding_type}, TorchRec divides outputs of other tables of "
                f"{collection_words(table)} by its numbers of ids, too{FIX}table_wise, column_wise or "
                "data_parallel, split all tables of the collection by rows, or give the table a collection of its own"
            )
        return None

    def _of_copies(self, table: Table) -> str | None:
        if self.kind == "cpu" and table.pooled and table.collection in self.uneven:
            return (
                "data_parallel on cpu does not run features of several batch sizes, as "
                f"{collection_words(table)} has{FIX}another sharding type"
            )
        if self.kind == "cpu" and not table.pooled:
            return "data_parallel on cpu pools sequence tables (pooling: none), for FBGEMM does; take another type"
        return None

    def _of_fused(self, table: Table, varying: bool) -> str | None:
        optimizer = table.optimizer or self.optimizer
        if self.kind == "cpu" and optimizer not in CPU_OPTIMIZERS:
            return (
                f"FBGEMM's fused kernels on cpu train with {', '.join(CPU_OPTIMIZERS)}, not {optimizer}; take one "
                "of them, or data_parallel"
            )
        if self.kind == "cuda" and optimizer == "adam" and table.data_type == "fp16":
            # without use_rowwise_bias_correction, embedding_split_host_pt2_autograd_template.cpp makes an empty
            # `row_counter` in the type of the weights, and the kernel wants fp32
            return "FBGEMM's fused adam on cuda trains tables in fp32, not fp16; take fp32, or another optimizer"
        if varying and optimizer not in VARYING_OPTIMIZERS:
            return self._varying_refused(table, VARYING_OPTIMIZERS)
        return None

    def _on_disk(self, table: Table, varying: bool, load_factor: float) -> str | None:
        if varying and (table.optimizer or self.optimizer) not in VARYING_ON_DISK:
            return self._varying_refused(table, VARYING_ON_DISK)
        if load_factor != CACHE_LOAD_FACTOR:
            # group_tables of torchrec/distributed/embedding_sharding.py passes on only factors of fused_uvm_caching
            return (
                f"TorchRec gives each {KEY_VALUE.name} table on cuda a cache of {CACHE_LOAD_FACTOR:g} of its rows, "
                f"whatever a plan says; take cache factor {CACHE_LOAD_FACTOR:g}"
            )
        return stays_in_memory(table, self.kind)

    def _varying_refused(self, table: Table, trained: tuple[str, ...]) -> str:
        return (
            f"FBGEMM's kernels run features with a batch_size of their own, as {collection_words(table)} has, "
            f"under {', '.join(trained)}, not {table.optimizer or self.optimizer}; take one of them"
        )


def _managed_refused(table: Table, sharding_type: str) -> str | None:
    """Why TorchRec's managed collisions cannot remap the ids of a table on CUDA; None if they can."""
    evict = None if table.dynamic is None else table.dynamic.evict
    if evict not in MANAGED_EVICTIONS:
        return (
            f"TorchRec's managed collisions on cuda evict by {' or '.join(MANAGED_EVICTIONS)}, and dynamic.evict is "
            f"{evict}{FIX}one of them"
        )
    if sharding_type != "row_wise":
        return f"TorchRec shards what gives ids their rows row_wise on cuda, not {sharding_type}{FIX}row_wise"
    return None
