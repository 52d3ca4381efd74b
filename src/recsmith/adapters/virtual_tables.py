"""Virtual tables of TorchRec: tables over a key space, whose rows are created as ids arrive and evicted by a policy.

There is nothing to plan for them: TorchRec shards them row_wise over all ranks, by buckets of keys, in a kernel that
the job names. So they are no part of the plan: each rank's memory for them is kept free of other tables, and their
entries are written into the sharding plan as TorchRec's own planner writes them (torchrec/distributed/planner, 1.8).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import placement as device_word
from torchrec.distributed.types import ParameterSharding
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, PoolingType, data_type_to_dtype

from recsmith.adapters.constraints import carried_fields
from recsmith.adapters.embedding_collections import Collection
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.units import counted, format_size

KERNELS = ("dram_virtual_table", "ssd_virtual_table")  # kernels that train; the third one is for embedding caches
ROW_WISE = "row_wise"
LOAD_FACTOR = 0.2  # default cache share of a key-value kernel: KV_CACHING_RATIO of TorchRec's planner
MIB = 2**20
OUTPUT_BYTES, ID_BYTES = 4, 8


@dataclass(frozen=True)
class VirtualTable:
    """A virtual table of a collection. kernel: the kernel that its constraints name.

    held: the number of a rank's rows at which ids are evicted; None if nothing triggers evictions. limits: its
    constraints.
    """

    path: str
    config: BaseEmbeddingConfig
    kernel: str
    limits: ParameterConstraints | None
    held: int | None


def virtual_tables(
    found: Sequence[Collection], constraints: Mapping[str, ParameterConstraints], cluster: Cluster
) -> list[VirtualTable]:
    """The virtual tables of a model, with their kernels.

    Raises:
        UsageError: TorchRec or FBGEMM cannot train a virtual table as it is configured.
    """
    return [
        _checked(collection, config, constraints.get(name), cluster)
        for collection in found
        for name, config in collection.virtual.items()
    ]


def _checked(
    collection: Collection, config: BaseEmbeddingConfig, limits: ParameterConstraints | None, cluster: Cluster
) -> VirtualTable:
    where, policy = f"virtual table '{config.name}'", config.virtual_table_eviction_policy
    kernels = tuple(limits.compute_kernels or ()) if limits else ()
    types = (limits.sharding_types if limits else None) or [ROW_WISE]
    buckets, rows = config.total_num_buckets, config.num_embeddings
    wrong = (
        (cluster.device.kind != "cuda", f"{where} runs on GPUs alone, and the cluster has {cluster.device.kind}"),
        (
            len(kernels) != 1 or not set(kernels) <= set(KERNELS),
            f"{where} needs one kernel of {', '.join(KERNELS)}, and its constraints name "
            f"{', '.join(kernels) or 'none'}; give ParameterConstraints(compute_kernels=['{KERNELS[0]}'])",
        ),
        (ROW_WISE not in types, f"{where} is sharded {ROW_WISE}, and its constraints allow {', '.join(types)}"),
        (policy is None, f"{where} has no virtual_table_eviction_policy, which FBGEMM wants; give NoEvictionPolicy()"),
        (
            bool(buckets) and rows % (buckets or 1) != 0,
            f"{where} has {rows} rows in {buckets} buckets, which do not divide them; give a number that does",
        ),
        (
            getattr(config, "pooling", None) == PoolingType.MEAN and bool(collection.configs),
            f"{where} has pooling mean, for which TorchRec divides outputs of the other tables of its collection, too; "
            "give it a collection of its own",
        ),
    )
    for is_so, rule in wrong:
        if is_so:
            raise UsageError(rule)
    trigger, kernel = getattr(policy, "training_id_eviction_trigger_count", 0), "".join(kernels)
    return VirtualTable(collection.path, config, kernel, limits, trigger or None)


def virtual_entries(
    tables: Sequence[VirtualTable], cluster: Cluster, device: str
) -> Iterator[tuple[str, str, ParameterSharding]]:
    """Entries of a sharding plan: (path of the collection, name of the table, entry)."""
    for table in tables:
        first, metadata = 0, list[ShardMetadata]()
        for rank, rows in enumerate(_rows_of_ranks(table.config, cluster.world_size)):
            metadata.append(
                ShardMetadata(
                    shard_offsets=[first, 0], shard_sizes=[rows, table.config.embedding_dim],
                    placement=device_word(device, rank, cluster.machine_devices),
                )
            )  # fmt: skip
            first += rows
        entry = ParameterSharding(
            sharding_type=ROW_WISE, compute_kernel=table.kernel, ranks=list(range(cluster.world_size)),
            sharding_spec=EnumerableShardingSpec(metadata), **carried_fields(table.limits, None),
        )  # fmt: skip
        yield table.path, table.config.name, entry


def _rows_of_ranks(config: BaseEmbeddingConfig, world_size: int) -> list[int]:
    """Number of keys on each rank: whole buckets, one more on the first ranks; without buckets, equal blocks."""
    buckets = config.total_num_buckets
    if not buckets:
        block = math.ceil(config.num_embeddings / world_size)
        return [max(0, min(block, config.num_embeddings - rank * block)) for rank in range(world_size)]
    whole, more = divmod(buckets, world_size)
    return [config.num_embeddings // buckets * (whole + (rank < more)) for rank in range(world_size)]


def virtual_bytes(table: VirtualTable, batch_size: int, world_size: int) -> int:
    """Bytes of a virtual table per device: the cache, as TorchRec's planner counts it, ids and outputs of a step.

    The cache is as large as key_value_params.max_l1_cache_size (MiB) allows, but at most its share of all keys.
    """
    config, limits = table.config, table.limits
    most = (limits.key_value_params.max_l1_cache_size or 0) if limits and limits.key_value_params else 0
    cache = limits.cache_params.load_factor if limits and limits.cache_params else None
    share = LOAD_FACTOR if cache is None else cache
    weights = config.num_embeddings * config.embedding_dim * data_type_to_dtype(config.data_type).itemsize
    features = len(config.feature_names)
    factors = (limits.pooling_factors if limits else None) or [1.0] * features
    outputs = batch_size * world_size * features * config.embedding_dim * OUTPUT_BYTES
    return min(most * MIB, math.ceil(weights * share)) + outputs + math.ceil(batch_size * sum(factors)) * ID_BYTES


def virtual_words(tables: Sequence[VirtualTable], size: int) -> str:
    """Sentences on the memory that is kept free for virtual tables, and on what is not counted."""
    endless = [table.config.name for table in tables if table.held is None]
    bounded = sum(table.held is not None for table in tables)
    text = f" Besides, {format_size(size)} for caches, ids and outputs of {counted(len(tables), 'virtual table')}."
    if bounded:
        text += f" Rows of {bounded} of them lie in host memory or on disk until their policy evicts them."
    if endless:
        text += f" Nothing bounds the rows of '{endless[0]}': training_id_eviction_trigger_count of its policy would."
    return text
