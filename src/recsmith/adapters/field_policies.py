"""How planning treats each module type, field and setting of TorchRec: each is carried, counted or refused.

This module covers module types and the fields of table configurations; constraints.py covers constraints, sharders.py
covers sharders. A module type is named by its class. Classes of torchrec.quant share their names with other classes, so
their names get the prefix 'quant.'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from torch import nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsmith.errors import UsageError

SHOWN_VALUE = 80  # most characters of a refused value in an error; longer values would hide the advice


@dataclass(frozen=True)
class FieldPolicy:
    """How planning treats one field.

    kind: 'carried' (the job gets it unchanged), 'counted' (planning uses it) or 'refused' (an error, unless it is at
    its default). note: how it is treated, for the tables in docs/torchrec.md; for a refused field the reason, and what
    to do instead.
    """

    kind: Literal["carried", "counted", "refused"]
    note: str


def carried(note: str) -> FieldPolicy:
    """The policy of a field that the job gets unchanged."""
    return FieldPolicy("carried", note)


def counted(note: str) -> FieldPolicy:
    """The policy of a field that planning uses."""
    return FieldPolicy("counted", note)


def refused(note: str) -> FieldPolicy:
    """The policy of a field that is an error unless it is at its default."""
    return FieldPolicy("refused", note)


UNKNOWN_FIELD = refused("this version does not know the field; leave it out")


def check_values(
    where: str,
    values: Mapping[str, Any],
    policies: Mapping[str, FieldPolicy],
    *,
    shown: str,
    unknown: FieldPolicy = UNKNOWN_FIELD,
) -> None:
    """Raise UsageError for the first value that is refused: its place, the value, the reason and what to do.

    Args:
        where: the place of the values, as the error names it.
        values: the values that are not at their defaults, by field; None counts as not given.
        policies: the policies of the fields.
        shown: format of a field's name in the error, such as 'CacheParams.{}'.
        unknown: the policy of a field that `policies` lacks.
    """
    for name, value in values.items():
        policy = policies.get(name, unknown)
        if policy.kind == "refused" and value is not None:
            raise UsageError(f"{where}: {shown.format(name)} is {repr(value)[:SHOWN_VALUE]}; {policy.note}")


Planned = EmbeddingBagCollection | EmbeddingCollection


@dataclass(frozen=True)
class ModuleType:
    """How planning treats one type of module.

    note: how it is planned, for docs/torchrec.md; for a refused type the reason, and what to do instead. inner: the
    attribute that holds the collection whose tables are planned; '' if that is the module itself.
    """

    kind: Literal["planned", "refused"]
    note: str
    inner: str = ""


_INFERENCE = "it is for inference, which is not planned; leave its sharder out"
_MERGE = "plan it with TorchRec's planner and put its entry into the plan"
_PRUNES = f"it prunes rows in training, which is not counted; {_MERGE}"
_FIXED = "its optimizer is part of it; use an EmbeddingBagCollection and apply_optimizer_in_backward"
_ONE_HOST = "its tables and interaction belong on one host; leave its sharder out to plan its collections alone"
_POOL = "it has no tables; put an ObjectPoolShardingPlan into the plan as well"
_REMAPS = "row_wise only, as TorchRec shards it; memory to remap its ids is kept free on every device"

MODULE_TYPES: dict[str, ModuleType] = {
    "EmbeddingBagCollection": ModuleType("planned", "pooled tables"),
    "EmbeddingCollection": ModuleType("planned", "sequence tables"),
    "FeatureProcessedEmbeddingBagCollection": ModuleType(
        "planned",
        "like its weighted collection; its processors are dense parameters, which the reserve counts",
        "_embedding_bag_collection",
    ),
    "ManagedCollisionEmbeddingBagCollection": ModuleType("planned", _REMAPS, "_embedding_module"),
    "ManagedCollisionEmbeddingCollection": ModuleType("planned", _REMAPS, "_embedding_module"),
    "ManagedCollisionCollection": ModuleType(
        "refused", "the sharder of the managed-collision collection around it shards it too; leave its own sharder out"
    ),
    "ITEPEmbeddingBagCollection": ModuleType("refused", _PRUNES),
    "ITEPEmbeddingCollection": ModuleType("refused", _PRUNES),
    "PECEmbeddingCollection": ModuleType("refused", f"its collision handlers are not counted; {_MERGE}"),
    "FusedEmbeddingBagCollection": ModuleType("refused", _FIXED),
    "FusedEmbeddingCollection": ModuleType("refused", _FIXED.replace("an EmbeddingBag", "an Embedding")),
    "EmbeddingTower": ModuleType("refused", _ONE_HOST),
    "EmbeddingTowerCollection": ModuleType("refused", _ONE_HOST),
    "EmbeddingBag": ModuleType("refused", "its table has no name; put it into an EmbeddingBagCollection"),
    "TensorPool": ModuleType("refused", _POOL),
    "KeyedJaggedTensorPool": ModuleType("refused", _POOL),
    "quant.EmbeddingBagCollection": ModuleType("refused", _INFERENCE),
    "quant.EmbeddingCollection": ModuleType("refused", _INFERENCE),
    "quant.FeatureProcessedEmbeddingBagCollection": ModuleType("refused", _INFERENCE),
    "QuantManagedCollisionEmbeddingBagCollection": ModuleType("refused", _INFERENCE),
    "QuantManagedCollisionEmbeddingCollection": ModuleType("refused", _INFERENCE),
}  # fmt: skip

UNKNOWN_MODULE = ModuleType("refused", "this version does not know the type; leave its sharder out")


def type_name(kind: type) -> str:
    """The name of a module's class in MODULE_TYPES."""
    return (
        f"quant.{kind.__name__}"
        if kind.__module__ == "torchrec.quant.embedding_modules" and not (kind.__name__.startswith("Quant"))
        else kind.__name__
    )


def planned_collection(module: nn.Module, path: str) -> Planned:
    """The collection whose tables are planned: the module itself, or the collection inside it.

    Raises:
        UsageError: the module is of a type that is not planned; the message says what to do instead.
    """
    name = type_name(type(module))
    known = MODULE_TYPES.get(name, UNKNOWN_MODULE)
    found: Any = getattr(module, known.inner) if known.inner else module
    if known.kind == "planned" and type(found) in (EmbeddingBagCollection, EmbeddingCollection):
        return found
    raise UsageError(f"module '{path}' is a {name}, which RecSmith does not plan: {known.note}")


def remaps_ids(module: nn.Module) -> bool:
    """Whether a module is a managed-collision collection, which remaps ids on the rank that has their rows."""
    return type(module).__name__ in ("ManagedCollisionEmbeddingBagCollection", "ManagedCollisionEmbeddingCollection")


_VIRTUAL = "only virtual tables read it; leave it out, or set use_virtual_table"
_BESIDE = (
    "virtual tables are not planned: they are row_wise by buckets of keys, in the kernel that their constraints name"
)

CONFIG_FIELDS: dict[str, FieldPolicy] = {
    "num_embeddings": counted("rows"),
    "embedding_dim": counted("columns"),
    "name": counted("the table's name"),
    "data_type": counted("fp32 and fp16; others are refused, also bf16 and int8, in which FBGEMM trains no tables"),
    "feature_names": counted("the features that read the table"),
    "pooling": counted("sum and mean; sequences have none"),
    "weight_init_max": carried("planning does not depend on it"),
    "weight_init_min": carried("planning does not depend on it"),
    "init_fn": carried("planning does not depend on it"),
    "need_pos": carried("planning does not depend on it"),
    "input_dim": carried("planning does not depend on it"),
    "num_embeddings_post_pruning": carried("training shards all rows, and planning counts them"),
    "stash_weights": carried("`stash_tables` sets it as a plan says; without a plan, weights count on the device"),
    "total_num_buckets": carried("of virtual tables: it divides their keys among ranks; refused for other tables"),
    "use_virtual_table": carried(_BESIDE),
    "virtual_table_eviction_policy": carried("of virtual tables; refused for other tables"),
    "enable_embedding_update": refused("it belongs to embedding caches, which are not planned; leave it out"),
}  # fmt: skip
OF_VIRTUAL = ("total_num_buckets", "virtual_table_eviction_policy")


def check_config(config: BaseEmbeddingConfig) -> None:
    """Raise UsageError, with the table's name, for a setting of its configuration that a plan would drop."""
    kind = type(config)
    given = {field.name: getattr(config, field.name) for field in fields(kind)}
    changed = {field.name: given[field.name] for field in fields(kind) if given[field.name] != field.default}
    policies = CONFIG_FIELDS if is_virtual(config) else CONFIG_FIELDS | dict.fromkeys(OF_VIRTUAL, refused(_VIRTUAL))
    check_values(f"table '{config.name}'", changed, policies, shown=f"{kind.__name__}.{{}}")


def is_virtual(config: BaseEmbeddingConfig) -> bool:
    """Whether a table is virtual: its rows are created as ids arrive. False in releases without virtual tables."""
    return bool(getattr(config, "use_virtual_table", False))
