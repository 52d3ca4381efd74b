"""What becomes of each setting of TorchRec's sharders: carried, counted or refused; nothing is dropped silently.

A setting is an argument of a sharder, or a method or property that a subclass may override. The job shards with the
same sharders, so that what planning does not count is carried without our doing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embedding_modules import BaseManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_modules import ManagedCollisionCollectionSharder
from torchrec.distributed.planner import ParameterConstraints

from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.fates import Fate
from recsmith.adapters.fused_params import check_fused_params
from recsmith.adapters.module_types import remaps_ids
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems import TableRule
from recsmith.sharding import DENSE, HOST_KERNELS, KERNEL_NAMES, TYPE_NAMES

_CALLED_BY_JOB = Fate("carried", "the job calls it")

SETTINGS: dict[str, Fate] = {
    "fused_params": Fate("counted", "key by key, as the rows below say"),
    "qcomm_codecs_registry": Fate("counted", "bytes of the all-to-alls, forward and backward"),
    "use_index_dedup": Fate("carried", "planning counts every id, equal ones too"),
    "sharded_module_order_overwrite": Fate("carried", "planning does not depend on the order of kernels"),
    "ebc_sharder": Fate("counted", "its settings count as a sharder's own"),
    "ec_sharder": Fate("counted", "its settings count as a sharder's own"),
    "mc_sharder": Fate("carried", "remapped ids have no codec; the tables' codecs are those of the other sharder"),
    "module_type": Fate("counted", "which modules are planned"),
    "shardable_parameters": Fate("counted", "which tables are planned"),
    "sharding_types": Fate("counted", "a rule, where a subclass overrides it"),
    "compute_kernels": Fate("counted", "a rule, where a subclass overrides it"),
    "storage_usage": Fate("refused", "planning counts memory itself; leave the override out, and use reserve_bytes"),
    "shard": _CALLED_BY_JOB,
    "reshard": _CALLED_BY_JOB,
    "sharded_module_type": _CALLED_BY_JOB,
}

# Whose lists of types and kernels are no user's wish: they say what TorchRec offers anywhere, and differ by device.
STOCK = (
    BaseEmbeddingSharder, EmbeddingCollectionSharder, FeatureProcessedEmbeddingBagCollectionSharder,
    BaseManagedCollisionEmbeddingCollectionSharder, ManagedCollisionCollectionSharder,
)  # fmt: skip


def check_sharders(found: Sequence[Collection]) -> None:
    """Refuse settings that a plan would drop silently (UsageError with the module's path)."""
    for collection in found:
        check_fused_params(collection.path, collection.embedding_sharder.fused_params)
        for sharder in _sharders(collection):
            if _overrides(sharder, "storage_usage"):
                raise UsageError(
                    f"sharder {type(sharder).__name__} of module '{collection.path}' overrides storage_usage(); "
                    f"{SETTINGS['storage_usage'].words}"
                )


def sharder_rules(
    found: Sequence[Collection], constraints: Mapping[str, ParameterConstraints], cluster: Cluster
) -> tuple[TableRule, ...]:
    """The rules that sharders and modules make for their tables.

    Raises:
        UsageError: a sharder offers no type or kernel that is planned, or kernels that differ between types.
    """
    names = table_names(found)
    rules: list[TableRule] = []
    for collection in found:
        fused = collection.embedding_sharder.fused_params or {}
        shared: list[dict[str, Any]] = [
            _offered(sharder, collection.path, cluster) for sharder in _sharders(collection)
        ]
        if remaps_ids(collection.outer):
            shared.append({"sharding_types": ("row_wise",)})
        for table in collection.configs:
            words = [*shared, *_fused_words(fused, constraints.get(table))]
            rules += [TableRule(tables=names[collection.path, table], **each) for each in words if each]
    return tuple(rules)


def _sharders(collection: Collection) -> list[Any]:
    """The module's sharder, and the one that it calls for the tables."""
    inner = collection.embedding_sharder
    return [collection.sharder] if inner is collection.sharder else [collection.sharder, inner]


def _overrides(sharder: Any, name: str) -> bool:
    """Whether a sharder has a method of its own in the place of TorchRec's."""
    mine = getattr(getattr(sharder, name), "__func__", None)
    return all(mine is not getattr(stock, name) for stock in STOCK)


def _offered(sharder: Any, path: str, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The types and kernels that a subclass allows; empty where it overrides neither."""
    own_types, own_kernels = _overrides(sharder, "sharding_types"), _overrides(sharder, "compute_kernels")
    device = cluster.device.kind
    types = [kind for kind in TYPE_NAMES if not own_types or kind in sharder.sharding_types(device)]
    words: dict[str, tuple[str, ...]] = {"sharding_types": tuple(types)} if own_types else {}
    if own_kernels:
        offered = {kind: set(sharder.compute_kernels(kind, device)) & _planned_kernels(kind) for kind in types}
        types = [kind for kind in types if offered[kind]]
        _check_alike(sharder, path, {kind: offered[kind] for kind in types if kind != "data_parallel"})
        kernels = set[str]().union(*(offered[kind] for kind in types))
        words = {
            "sharding_types": tuple(types),
            "compute_kernels": tuple(kernel for kernel in KERNEL_NAMES if kernel in kernels),
        }
    if not types:
        raise UsageError(
            f"sharder {type(sharder).__name__} of module '{path}' offers no type or kernel that is planned; planned "
            f"are the types {', '.join(TYPE_NAMES)} and the kernels {', '.join(KERNEL_NAMES)}"
        )
    return words


def _planned_kernels(kind: str) -> set[str]:
    """The kernels that are planned for a sharding type."""
    return {DENSE.name} if kind == "data_parallel" else set(KERNEL_NAMES) - {DENSE.name}


def _check_alike(sharder: Any, path: str, offered: Mapping[str, set[str]]) -> None:
    """Refuse kernels that depend on the type: a rule of a table holds for all of its types."""
    one, *others = offered or [""]
    for other in others:
        if offered[other] != offered[one]:
            raise UsageError(
                f"sharder {type(sharder).__name__} of module '{path}' offers {', '.join(sorted(offered[one]))} for "
                f"{one} and {', '.join(sorted(offered[other]))} for {other}; offer the same, or one type"
            )


def _fused_words(fused: Mapping[str, Any], limits: ParameterConstraints | None) -> list[dict[str, Any]]:
    """What fused_params rule for a table; its constraints go before them."""
    words: list[dict[str, Any]] = []
    cache = limits.cache_params if limits else None
    factor = fused.get("cache_load_factor")
    if factor is not None and (cache is None or cache.load_factor is None):
        words.append({"cache_factors": (factor,)})
    if fused.get("enforce_hbm") and (limits is None or limits.enforce_hbm is None):
        words.append({"compute_kernels": tuple(kernel for kernel in KERNEL_NAMES if kernel not in HOST_KERNELS)})
    return words
