"""What becomes of each key of a sharder's fused_params: what TorchRec hands to FBGEMM's fused kernels.

Keys are the arguments of FBGEMM's SplitTableBatchedEmbeddingBagsCodegen (1.8 and 1.9), and those that TorchRec takes
out on the way. What a table's constraints say, and an optimizer attached to its parameters, goes before them, as in
TorchRec (add_params_from_parameter_sharding and merge_fused_params of torchrec/distributed/utils.py).
"""

from collections.abc import Mapping
from typing import Any

from recsmith.adapters.fates import Fate, refusal
from recsmith.adapters.optimizer_names import read_optimizer

_NUMBER = Fate("carried", "a number of the optimizer; planning does not depend on it")
_ONLY_LOGS = Fate("carried", "it reports; planning does not depend on it")
_UNCOUNTED = "planning counts no memory for it; keep some free with reserve_bytes"
_A_COUNTER = Fate("carried", "planning does not count the 4 to 8 bytes a row that it adds; use reserve_bytes")
_SET_BY_TORCHREC = Fate("refused", "TorchRec sets it from the tables, and a second value fails; leave it out")
_UNPLANNED_OPTIMIZER = Fate("refused", "its optimizer is not planned; leave it out")
_RMSPROP_AR = Fate("carried", "a number of an optimizer that is not planned; others do not read it")

FUSED_PARAMS: dict[str, Fate] = {
    "optimizer": Fate("counted", "the optimizer and its state, where none is attached or given; unknown ones refused"),
    "learning_rate": _NUMBER, "eps": _NUMBER, "momentum": _NUMBER, "weight_decay": _NUMBER, "eta": _NUMBER,
    "beta1": _NUMBER, "beta2": _NUMBER, "gradient_clipping": _NUMBER, "max_gradient": _NUMBER, "max_norm": _NUMBER,
    "ar_alpha": _RMSPROP_AR, "ema_beta": _RMSPROP_AR, "min_shrinkage": _RMSPROP_AR,
    "weight_decay_mode": _A_COUNTER, "counter_based_regularization": _A_COUNTER, "cowclip_regularization": _A_COUNTER,
    "global_weight_decay": _A_COUNTER, "extra_optimizer_config": _A_COUNTER,
    "ensemble_mode": _UNPLANNED_OPTIMIZER, "emainplace_mode": _UNPLANNED_OPTIMIZER,
    "optimizer_state_dtypes": Fate("carried", "planning counts states as fp32, which no type exceeds"),
    "cache_load_factor": Fate("counted", "a rule: the share that a cache keeps, where constraints give none"),
    "enforce_hbm": Fate("counted", "True is a rule: no kernel with weights in host memory; carried too"),
    "cache_sets": Fate("refused", "it overrides the planned cache; give cache_load_factor instead"),
    "cache_algorithm": Fate("carried", "planning counts all alike"),
    "cache_reserved_memory": Fate("carried", "planning does not count it; keep memory free with reserve_bytes"),
    "cache_precision": Fate("carried", "planning counts the cache in the type of the weights"),
    "prefetch_pipeline": Fate("carried", _UNCOUNTED), "multipass_prefetch_config": Fate("carried", _UNCOUNTED),
    "enable_raw_embedding_streaming": Fate("carried", _UNCOUNTED), "res_enabled_tables": Fate("carried", _UNCOUNTED),
    "res_store_shards": Fate("carried", _UNCOUNTED),
    "output_dtype": Fate("carried", "planning counts outputs as fp32, which no output type of FBGEMM exceeds"),
    "stochastic_rounding": Fate("carried", "planning does not depend on it"),
    "bounds_check_mode": Fate("carried", "planning does not depend on it"),
    "uvm_host_mapped": Fate("carried", "planning counts host memory alike"),
    "uvm_non_rowwise_momentum": Fate("carried", "planning counts the states where the weights are"),
    "use_experimental_tbe": Fate("carried", "planning counts all kernels alike"),
    "use_one_tbe_per_table": Fate("carried", "planning counts the kernels as if tables shared them"),
    "tbe_input_multiplexer_config": _ONLY_LOGS, "record_cache_metrics": _ONLY_LOGS,
    "gather_uvm_cache_stats": _ONLY_LOGS, "stats_reporter_config": _ONLY_LOGS,
    "embedding_table_index_type": Fate("carried", "planning counts ids as int64, which no type exceeds"),
    "embedding_table_offset_type": Fate("carried", "planning counts offsets as int64, which no type exceeds"),
    "embedding_specs": _SET_BY_TORCHREC, "feature_table_map": _SET_BY_TORCHREC, "pooling_mode": _SET_BY_TORCHREC,
    "weights_precision": _SET_BY_TORCHREC, "device": _SET_BY_TORCHREC, "table_names": _SET_BY_TORCHREC,
    "embedding_shard_info": _SET_BY_TORCHREC, "res_params": _SET_BY_TORCHREC,
    "is_qr_tbe": Fate("refused", "tables in two factors are not planned; leave it out"),
    "preallocated_host_buffers": Fate("refused", "buffers of one kernel cannot serve those of a plan; leave them out"),
}  # fmt: skip

UNKNOWN_KEY = Fate("refused", "neither FBGEMM's fused kernels nor planning know the key; leave it out")


def check_fused_params(path: str, given: Mapping[str, Any] | None) -> None:
    """Refuse a key that is not kept (UsageError with the module's path)."""
    for name, value in (given or {}).items():
        fate = FUSED_PARAMS.get(name, UNKNOWN_KEY)
        if fate.kind == "refused" and value is not None:
            raise refusal(f"the sharder of module '{path}'", f"fused_params['{name}']", value, fate.words)


def fused_optimizer(given: Mapping[str, Any] | None) -> str | None:
    """RecSmith's word for the optimizer of fused_params, if they name one (UsageError where it is not known)."""
    optimizer = (given or {}).get("optimizer")
    return None if optimizer is None else read_optimizer(optimizer)
