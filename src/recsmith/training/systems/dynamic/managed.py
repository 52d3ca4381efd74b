"""Builds TorchRec's managed collisions from the same rules, for your own job on GPUs, where FBGEMM's operators evict.

Differences: TorchRec moves an id within a range of rows by its hash (HashZch) or sorts all ids at an interval of steps
(MCH), no row is reserved for unknown ids, and an id without a row shares the row of another id.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torchrec import EmbeddingBagCollection
from torchrec.modules.hash_mc_evictions import HashZchEvictionConfig, HashZchEvictionPolicyName
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    LFU_EvictionPolicy,
    ManagedCollisionCollection,
    ManagedCollisionModule,
    MCHManagedCollisionModule,
)

from recsmith.errors import UsageError
from recsmith.workloads.dynamic import Dynamic

INTERVAL = 1000  # steps after which MCH sorts ids; trade-off: a shorter interval costs more and follows a stream sooner
HOURS = 1  # hours after a lookup before HashZch may give the row away, in addition to its LRU rule


def to_managed_collisions(
    bags: EmbeddingBagCollection, tables: Mapping[str, Dynamic], device: torch.device, *, buckets: int = 1
) -> ManagedCollisionEmbeddingBagCollection:
    """Pooled tables whose raw ids TorchRec maps.

    Args:
        bags: the collection of tables.
        tables: rule of each table of the collection.
        device: of the maps.
        buckets: parts of a HashZch map, divided among ranks; the number of rows must be a multiple of the buckets, and
            the buckets a multiple of the ranks.

    Raises:
        UsageError: a table has no rule, or a rule that TorchRec does not support.
    """
    configs = bags.embedding_bag_configs()
    missing = next((config.name for config in configs if config.name not in tables), None)
    if missing is not None:
        raise UsageError(
            f"table '{missing}' has no rule, and TorchRec maps ids of all tables of a collection; put it into another"
        )
    modules: dict[str, Any] = {config.name: _module(config, tables[config.name], device, buckets) for config in configs}
    return ManagedCollisionEmbeddingBagCollection(bags, ManagedCollisionCollection(modules, configs))


def _module(config: Any, rule: Dynamic, device: torch.device, buckets: int) -> ManagedCollisionModule:
    if rule.admit > 1 or rule.evict == "age":
        odd = "admit above 1" if rule.admit > 1 else "evict: age"
        raise UsageError(
            f"table '{config.name}' has {odd}, which TorchRec's managed collisions do not know; give it admit 1 and "
            "evict lfu, lru or none there"
        )
    if rule.evict == "lfu":
        return MCHManagedCollisionModule(
            zch_size=config.num_embeddings, device=device, eviction_policy=LFU_EvictionPolicy(),
            eviction_interval=INTERVAL,
        )  # fmt: skip
    if config.num_embeddings % buckets:
        raise UsageError(
            f"table '{config.name}' has {config.num_embeddings:,} rows, which {buckets} buckets do not share evenly; "
            f"give it a multiple of {buckets}"
        )
    lru = rule.evict == "lru"
    config_of_lru = HashZchEvictionConfig(features=list(config.feature_names), single_ttl=HOURS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of how TorchRec copies a tensor
        return HashZchManagedCollisionModule(
            zch_size=config.num_embeddings, device=device, total_num_buckets=buckets,
            eviction_policy_name=HashZchEvictionPolicyName.LRU_EVICTION if lru else None,
            eviction_config=config_of_lru if lru else None,
        )  # fmt: skip
