"""What becomes of each field of TorchRec's EmbeddingBagConfig and EmbeddingConfig."""

from dataclasses import fields

from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.adapters.fates import Fate, refusal

_VIRTUAL = "only virtual tables read it, which are not planned; leave it out"

CONFIG_FIELDS: dict[str, Fate] = {
    "num_embeddings": Fate("counted", "rows"),
    "embedding_dim": Fate("counted", "columns"),
    "name": Fate("counted", "the table's name"),
    "data_type": Fate("counted", "fp32, fp16, bf16 and int8; others are refused"),
    "feature_names": Fate("counted", "what reads the table"),
    "pooling": Fate("counted", "sum and mean; sequences have none"),
    "weight_init_max": Fate("carried", "planning does not depend on it"),
    "weight_init_min": Fate("carried", "planning does not depend on it"),
    "init_fn": Fate("carried", "planning does not depend on it"),
    "need_pos": Fate("carried", "planning does not depend on it"),
    "input_dim": Fate("carried", "planning does not depend on it"),
    "num_embeddings_post_pruning": Fate("carried", "training shards all rows, and planning counts them"),
    "stash_weights": Fate("carried", "planning counts the weights on the device, also while they are stashed"),
    "total_num_buckets": Fate("refused", _VIRTUAL),
    "use_virtual_table": Fate("refused", "virtual tables need key-value kernels, which are not planned; leave it out"),
    "virtual_table_eviction_policy": Fate("refused", _VIRTUAL),
    "enable_embedding_update": Fate("refused", "updates need key-value kernels, which are not planned; leave it out"),
}  # fmt: skip

UNKNOWN_FIELD = Fate("refused", "this version does not know the field; leave it out")


def check_config(config: BaseEmbeddingConfig) -> None:
    """Refuse what a table's configuration asks for and a plan would not keep (UsageError with the table's name)."""
    defaults = {field.name: field.default for field in fields(type(config))}
    for name, default in defaults.items():
        value, fate = getattr(config, name), CONFIG_FIELDS.get(name, UNKNOWN_FIELD)
        if fate.kind == "refused" and value is not None and value != default:
            raise refusal(f"table '{config.name}'", f"{type(config).__name__}.{name}", value, fate.words)
