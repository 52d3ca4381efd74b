"""Eviction and memory of the modules that map ids to rows in managed-collision collections (zero collision hashing).

Such a module is sharded with the rows: TorchRec shards these collections row_wise only, and rebuilds each table's
ManagedCollisionModule for the rows of a rank (ShardedManagedCollisionCollection of torchrec/distributed/mc_modules.py).
Its buffers take the same memory on every rank under any plan. Temporary memory of an eviction is not counted.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn
from torchrec.modules.mc_modules import MCHManagedCollisionModule

from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.field_policies import remaps_ids
from recsmith.errors import UsageError
from recsmith.sharding.memory import id_map_bytes
from recsmith.workloads import Dynamic, Table, Workload
from recsmith.workloads.dynamic import Eviction

EVICTED_BY: dict[str, Eviction] = {  # by class of the eviction policy, or its name in HashZchManagedCollisionModule
    "LFU_EvictionPolicy": "lfu", "DistanceLFU_EvictionPolicy": "lfu", "LRU_EvictionPolicy": "lru",
    "LRU_EVICTION": "lru", "SINGLE_TTL_EVICTION": "lru", "PER_FEATURE_TTL_EVICTION": "lru",
}  # fmt: skip


def dynamic_of(collection: Collection, table: str) -> Dynamic | None:
    """The eviction of a table's ids, as its managed-collision module defines it; None if it has no such module.

    None is also returned for an unknown policy. Filters that admit ids by a threshold are ignored.
    """
    if not remaps_ids(collection.outer):
        return None
    outer: Any = collection.outer
    module: Any = dict(outer._managed_collision_collection._managed_collision_modules).get(table)
    policy: Any = getattr(module, "_eviction_policy", None)
    named: Any = getattr(module, "_eviction_policy_name", None)
    evict = EVICTED_BY.get(str(getattr(named, "value", type(policy).__name__)))
    return None if evict is None else Dynamic(evict=evict)


ID_BYTES = 8  # raw ids, and the numbers by which evictions rank them, are int64
HISTORY_ROOM = 1.25  # buffer size / ids between evictions: _init_history_buffers of torchrec/modules/mc_modules.py


def remapping_bytes(
    found: Sequence[Collection], workload: Workload, world_size: int, counted_on: str | None = None
) -> int:
    """Bytes on every device of the modules that remap the ids of managed-collision collections.

    Args:
        found: the collections of the model.
        workload: the workload that was read from them.
        world_size: number of ranks.
        counted_on: the kind of devices if planning counts the ids of tables together with their rows; those bytes are
            then left out here. None if planning does not count them.

    Raises:
        UsageError: TorchRec cannot shard a collection over this many ranks.
    """
    tables, names = {table.name: table for table in workload.tables}, table_names(found)
    return sum(
        _collision_bytes(module, tables[names[collection.path, name]], workload.batch_size, world_size, counted_on)
        for collection in found
        if remaps_ids(collection.outer)
        for name, module in _collision_modules(collection, world_size).items()
    )


def _collision_modules(collection: Collection, world_size: int) -> dict[str, nn.Module]:
    """The ManagedCollisionModule of each table, after checking that TorchRec can shard it."""
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
    """Refuse buckets of ids that are split between two ranks: TorchRec cannot rebuild the module for a rank."""
    buckets: list[int] | None = getattr(module, "_output_segments", None)
    block = -(-rows // world_size)
    if buckets is not None and not {min(rank * block, rows) for rank in range(world_size + 1)} <= set(buckets):
        raise UsageError(
            f"table '{table}' has {len(buckets) - 1} buckets of ids over {rows} rows, and {world_size} ranks hold "
            f"{block} rows each; give total_num_buckets a multiple of the ranks that divides the rows"
        )


def _collision_bytes(module: nn.Module, table: Table, batch_size: int, world_size: int, counted_on: str | None) -> int:
    """Bytes of one table's module on a rank: its share of the tensors with one entry per row, and all other tensors."""
    rows, block = table.num_embeddings, -(-table.num_embeddings // world_size)
    kept = 0
    for tensor in (*module.buffers(), *module.parameters()):
        by_row = tensor.ndim > 0 and tensor.shape[0] == rows
        kept += tensor.nbytes // rows * block if by_row else tensor.nbytes
    kept -= 0 if counted_on is None else min(kept, block * id_map_bytes(table, counted_on))
    return kept + (_history_bytes(module, table, batch_size) if isinstance(module, MCHManagedCollisionModule) else 0)


def _history_bytes(module: MCHManagedCollisionModule, table: Table, batch_size: int) -> int:
    """Bytes of the ids that a rank stores between evictions, and of the numbers by which the policy ranks them."""
    ids = sum((f.batch_size or batch_size) * f.pooling_factor * f.num_poolings for f in table.features)
    ranked = sum(in_history for _, _, in_history in module._eviction_policy.metadata_info)
    return ID_BYTES * (1 + ranked) * math.ceil(ids * module._eviction_interval * HISTORY_ROOM)
