"""The memory of what remaps ids in managed-collision collections (zero collision hashing, ZCH), which rows follow.

TorchRec shards these collections row_wise only, and rebuilds each table's ManagedCollisionModule for the rows of a rank
(ShardedManagedCollisionCollection of torchrec/distributed/mc_modules.py): its buffers take the same memory on every
rank, whatever the plan. What an eviction sorts for a moment is not counted.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn
from torchrec.modules.mc_modules import MCHManagedCollisionModule

from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.module_types import remaps_ids
from recsmith.errors import UsageError
from recsmith.workloads import Table, Workload

ID_BYTES = 8  # raw ids and what evictions rank them by are int64
HISTORY_ROOM = 1.25  # of the ids between evictions: _init_history_buffers of torchrec/modules/mc_modules.py


def remapping_bytes(found: Sequence[Collection], workload: Workload, world_size: int) -> int:
    """Bytes on every device of what remaps the ids of managed-collision collections.

    Raises:
        UsageError: a collection that TorchRec cannot shard over so many ranks.
    """
    tables, names = {table.name: table for table in workload.tables}, table_names(found)
    return sum(
        _table_bytes(module, tables[names[collection.path, name]], workload.batch_size, world_size)
        for collection in found
        if remaps_ids(collection.outer)
        for name, module in _modules(collection, world_size).items()
    )


def _modules(collection: Collection, world_size: int) -> dict[str, nn.Module]:
    """The ManagedCollisionModule of each table, checked."""
    outer: Any = collection.outer
    features = [feature for config in collection.configs.values() for feature in config.feature_names]
    twin = next((feature for feature in features if features.count(feature) > 1), None)
    if twin is not None:
        raise UsageError(
            f"feature '{twin}' of module '{collection.path}' reads two tables, which TorchRec does not shard with "
            "managed collisions; give each table a feature of its own"
        )
    modules = dict(outer._managed_collision_collection._managed_collision_modules)
    for name, module in modules.items():
        _check_buckets(name, module, collection.configs[name].num_embeddings, world_size)
    return modules


def _check_buckets(table: str, module: nn.Module, rows: int, world_size: int) -> None:
    """Refuse buckets that lie across the rows of two ranks: TorchRec cannot rebuild the module for a rank."""
    buckets: list[int] | None = getattr(module, "_output_segments", None)
    block = -(-rows // world_size)
    if buckets is not None and not {min(rank * block, rows) for rank in range(world_size + 1)} <= set(buckets):
        raise UsageError(
            f"table '{table}' has {len(buckets) - 1} buckets of ids over {rows} rows, and {world_size} ranks hold "
            f"{block} rows each; give total_num_buckets a multiple of the ranks that divides the rows"
        )


def _table_bytes(module: nn.Module, table: Table, batch_size: int, world_size: int) -> int:
    """Bytes of one table's module on a rank: its share of what is kept by row, and all of the rest."""
    rows, block = table.num_embeddings, -(-table.num_embeddings // world_size)
    kept = 0
    for tensor in (*module.buffers(), *module.parameters()):
        by_row = tensor.ndim > 0 and tensor.shape[0] == rows
        kept += tensor.nbytes // rows * block if by_row else tensor.nbytes
    return kept + (_history_bytes(module, table, batch_size) if isinstance(module, MCHManagedCollisionModule) else 0)


def _history_bytes(module: MCHManagedCollisionModule, table: Table, batch_size: int) -> int:
    """Bytes of the ids that a rank remembers between evictions, and of what the policy ranks them by."""
    ids = sum((f.batch_size or batch_size) * f.pooling_factor * f.num_poolings for f in table.features)
    ranked = sum(in_history for _, _, in_history in module._eviction_policy.metadata_info)
    return ID_BYTES * (1 + ranked) * math.ceil(ids * module._eviction_interval * HISTORY_ROOM)
