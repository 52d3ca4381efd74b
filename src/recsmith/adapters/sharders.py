"""How planning treats each setting of TorchRec's sharders: carried, counted or refused; none is dropped silently.

A setting is an argument of a sharder, a method or property that a subclass may override, or a key of fused_params,
which TorchRec passes to FBGEMM's fused kernels. The job shards with the same sharders, so a setting that planning does
not count reaches the job anyway.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embedding_modules import BaseManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_modules import ManagedCollisionCollectionSharder
from torchrec.distributed.planner import ParameterConstraints

from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.field_policies import FieldPolicy, carried, check_values, counted, refused, remaps_ids
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems import Space, TableRule
from recsmith.sharding import DENSE, DEVICE_KERNELS, KERNEL_NAMES, TYPE_NAMES
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName, named_optimizer


def read_optimizer(optimizer: str | Enum) -> OptimizerName:
    """RecSmith's name of an optimizer, given by that name, FBGEMM's name in either case, or an EmbOptimType.

    Raises:
        UsageError: the optimizer is not known; the message lists the known ones.
    """
    found = named_optimizer(str(optimizer.value if isinstance(optimizer, Enum) else optimizer))
    if found is None:
        others = ", ".join(name.upper() for each in OPTIMIZERS.values() for name in each.other_names)
        raise UsageError(f"no optimizer is called '{optimizer}'; known: {', '.join(OPTIMIZERS)}, and FBGEMM's {others}")
    return found.name


_NUMBER = carried("a number of the optimizer; planning does not depend on it")
_ONLY_LOGS = carried("it is for reports only; planning does not depend on it")
_UNCOUNTED = "planning counts no memory for it; keep some free with reserve_bytes"
_A_COUNTER = carried("it adds 4 to 8 bytes a row, which planning does not count; use reserve_bytes")
_SET_BY_TORCHREC = refused("TorchRec sets it from the tables, and a second value fails; leave it out")
_UNPLANNED_OPTIMIZER = refused("its optimizer is not planned; leave it out")
_RMSPROP_AR = carried("a number of an optimizer that is not planned; other optimizers do not read it")

FUSED_PARAMS: dict[str, FieldPolicy] = {
    "optimizer": counted("the optimizer and its state, if none is attached or passed; unknown ones are refused"),
    "learning_rate": _NUMBER, "eps": _NUMBER, "momentum": _NUMBER, "weight_decay": _NUMBER, "eta": _NUMBER,
    "beta1": _NUMBER, "beta2": _NUMBER, "gradient_clipping": _NUMBER, "max_gradient": _NUMBER, "max_norm": _NUMBER,
    "ar_alpha": _RMSPROP_AR, "ema_beta": _RMSPROP_AR, "min_shrinkage": _RMSPROP_AR,
    "weight_decay_mode": _A_COUNTER, "counter_based_regularization": _A_COUNTER, "cowclip_regularization": _A_COUNTER,
    "global_weight_decay": _A_COUNTER, "extra_optimizer_config": _A_COUNTER,
    "ensemble_mode": _UNPLANNED_OPTIMIZER, "emainplace_mode": _UNPLANNED_OPTIMIZER,
    "optimizer_state_dtypes": carried("planning counts states as fp32, which no type exceeds"),
    "cache_load_factor": counted("a rule: the share of rows that a cache holds, if constraints give none"),
    "enforce_hbm": counted("True is a rule: no kernel with weights in host memory; carried too"),
    "cache_sets": refused("it overrides the planned cache; give cache_load_factor instead"),
    "cache_algorithm": carried("planning counts all algorithms the same way"),
    "cache_reserved_memory": carried("planning does not count it; keep memory free with reserve_bytes"),
    "cache_precision": carried("planning counts the cache in the type of the weights"),
    "prefetch_pipeline": carried(_UNCOUNTED), "multipass_prefetch_config": carried(_UNCOUNTED),
    "enable_raw_embedding_streaming": carried(_UNCOUNTED), "res_enabled_tables": carried(_UNCOUNTED),
    "res_store_shards": carried(_UNCOUNTED),
    "output_dtype": carried("planning counts outputs as fp32, which no output type of FBGEMM exceeds"),
    "stochastic_rounding": carried("planning does not depend on it"),
    "bounds_check_mode": carried("planning does not depend on it"),
    "uvm_host_mapped": carried("planning counts host memory the same with and without it"),
    "uvm_non_rowwise_momentum": carried("planning counts the states in the same memory as the weights"),
    "use_experimental_tbe": carried("planning counts all kernels the same way"),
    "use_one_tbe_per_table": carried("planning counts the kernels as if tables shared them"),
    "tbe_input_multiplexer_config": _ONLY_LOGS, "record_cache_metrics": _ONLY_LOGS,
    "gather_uvm_cache_stats": _ONLY_LOGS, "stats_reporter_config": _ONLY_LOGS,
    "embedding_table_index_type": carried("planning counts ids as int64, which no type exceeds"),
    "embedding_table_offset_type": carried("planning counts offsets as int64, which no type exceeds"),
    "embedding_specs": _SET_BY_TORCHREC, "feature_table_map": _SET_BY_TORCHREC, "pooling_mode": _SET_BY_TORCHREC,
    "weights_precision": _SET_BY_TORCHREC, "device": _SET_BY_TORCHREC, "table_names": _SET_BY_TORCHREC,
    "embedding_shard_info": _SET_BY_TORCHREC, "res_params": _SET_BY_TORCHREC,
    "is_qr_tbe": refused("tables stored as two factors are not planned; leave it out"),
    "preallocated_host_buffers": refused("buffers for one kernel do not fit the kernels of a plan; leave them out"),
}  # fmt: skip

UNKNOWN_KEY = refused("neither FBGEMM's fused kernels nor planning know the key; leave it out")


def check_fused_params(path: str, given: Mapping[str, Any] | None) -> None:
    """Raise UsageError, with the module's path, for a key of fused_params that is refused or unknown."""
    where = f"the sharder of module '{path}'"
    check_values(where, given or {}, FUSED_PARAMS, shown="fused_params['{}']", unknown=UNKNOWN_KEY)


def fused_optimizer(given: Mapping[str, Any] | None) -> OptimizerName | None:
    """RecSmith's name for the optimizer of fused_params; None if they name none, UsageError if it is not known."""
    optimizer = (given or {}).get("optimizer")
    return None if optimizer is None else read_optimizer(optimizer)


_CALLED_BY_JOB = carried("the job calls it")

SETTINGS: dict[str, FieldPolicy] = {
    "fused_params": counted("key by key, as the rows below say"),
    "qcomm_codecs_registry": counted("bytes of the all-to-alls, forward and backward"),
    "use_index_dedup": counted("equal ids of a rank are looked up once in sequence tables"),
    "sharded_module_order_overwrite": carried("planning does not depend on the order of kernels"),
    "ebc_sharder": counted("its settings are counted like a sharder's own"),
    "ec_sharder": counted("its settings are counted like a sharder's own"),
    "mc_sharder": FieldPolicy(
        "carried", "remapped ids have no codec; the tables' codecs are those of the other sharder"
    ),
    "module_type": counted("which modules are planned"),
    "shardable_parameters": counted("which tables are planned"),
    "sharding_types": counted("a rule, if a subclass overrides it"),
    "compute_kernels": counted("a rule, if a subclass overrides it"),
    "storage_usage": FieldPolicy(
        "refused", "planning counts memory itself; leave the override out, and use reserve_bytes"
    ),
    "shard": _CALLED_BY_JOB,
    "reshard": _CALLED_BY_JOB,
    "sharded_module_type": _CALLED_BY_JOB,
}

# TorchRec's own sharders. Their lists of types and kernels differ by device and express no wish of the user.
STOCK = (
    BaseEmbeddingSharder, EmbeddingCollectionSharder, FeatureProcessedEmbeddingBagCollectionSharder,
    BaseManagedCollisionEmbeddingCollectionSharder, ManagedCollisionCollectionSharder,
)  # fmt: skip


def check_sharders(found: Sequence[Collection]) -> None:
    """Raise UsageError, with the module's path, for settings that a plan would drop silently."""
    for collection in found:
        check_fused_params(collection.path, collection.embedding_sharder.fused_params)
        for sharder in _sharders(collection):
            if _overrides(sharder, "storage_usage"):
                raise UsageError(
                    f"sharder {type(sharder).__name__} of module '{collection.path}' overrides storage_usage(); "
                    f"{SETTINGS['storage_usage'].note}"
                )


def sharder_rules(
    found: Sequence[Collection], constraints: Mapping[str, ParameterConstraints], cluster: Cluster, space: Space
) -> tuple[TableRule, ...]:
    """The rules that sharders and modules impose on their tables: sharding types, kernels and cache factors.

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
            wanted = constraints.get(table)
            opened = {*space.kernels, *((wanted and wanted.compute_kernels) or ())}
            limits = [*(_within(each, opened) for each in shared), *_fused_limits(fused, wanted)]
            rules += [TableRule(tables=names[collection.path, table], **each) for each in limits if each]
    return tuple(rules)


def _within(limits: dict[str, Any], opened: set[str]) -> dict[str, Any]:
    """The limits with their kernels reduced to those in `opened`, if any is: an offered kernel need not be used."""
    kernels = tuple(kernel for kernel in limits.get("compute_kernels", ()) if kernel in opened)
    return {**limits, "compute_kernels": kernels} if kernels else limits


def _sharders(collection: Collection) -> list[Any]:
    """The module's sharder, and the inner sharder that it calls for the tables, if any."""
    inner = collection.embedding_sharder
    return [collection.sharder] if inner is collection.sharder else [collection.sharder, inner]


def _overrides(sharder: Any, name: str) -> bool:
    """Whether a sharder overrides a method of TorchRec's sharders."""
    mine = getattr(getattr(sharder, name), "__func__", None)
    return all(mine is not getattr(stock, name) for stock in STOCK)


def _offered(sharder: Any, path: str, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The types and kernels that a subclass of a sharder allows; empty if it overrides neither."""
    own_types, own_kernels = _overrides(sharder, "sharding_types"), _overrides(sharder, "compute_kernels")
    device = cluster.device.kind
    types = [kind for kind in TYPE_NAMES if not own_types or kind in sharder.sharding_types(device)]
    limits: dict[str, tuple[str, ...]] = {"sharding_types": tuple(types)} if own_types else {}
    if own_kernels:
        offered = {kind: set(sharder.compute_kernels(kind, device)) & _planned_kernels(kind) for kind in types}
        types = [kind for kind in types if offered[kind]]
        _check_alike(sharder, path, {kind: offered[kind] for kind in types if kind != "data_parallel"})
        kernels = set[str]().union(*(offered[kind] for kind in types))
        limits = {
            "sharding_types": tuple(types),
            "compute_kernels": tuple(kernel for kernel in KERNEL_NAMES if kernel in kernels),
        }
    if not types:
        raise UsageError(
            f"sharder {type(sharder).__name__} of module '{path}' offers no type or kernel that is planned; planned "
            f"are the types {', '.join(TYPE_NAMES)} and the kernels {', '.join(KERNEL_NAMES)}"
        )
    return limits


def _planned_kernels(kind: str) -> set[str]:
    return {DENSE.name} if kind == "data_parallel" else set(KERNEL_NAMES) - {DENSE.name}


def _check_alike(sharder: Any, path: str, offered: Mapping[str, set[str]]) -> None:
    """Refuse kernels that depend on the sharding type: a rule of a table applies to all of its types."""
    one, *others = offered or [""]
    for other in others:
        if offered[other] != offered[one]:
            raise UsageError(
                f"sharder {type(sharder).__name__} of module '{path}' offers {', '.join(sorted(offered[one]))} for "
                f"{one} and {', '.join(sorted(offered[other]))} for {other}; offer the same, or one type"
            )


def _fused_limits(fused: Mapping[str, Any], constraints: ParameterConstraints | None) -> list[dict[str, Any]]:
    """Limits that fused_params impose on a table; its constraints take precedence."""
    limits: list[dict[str, Any]] = []
    cache = constraints.cache_params if constraints else None
    factor = fused.get("cache_load_factor")
    if factor is not None and (cache is None or cache.load_factor is None):
        limits.append({"cache_factors": (factor,)})
    if fused.get("enforce_hbm") and (constraints is None or constraints.enforce_hbm is None):
        limits.append({"compute_kernels": DEVICE_KERNELS})
    return limits
