"""What becomes of each module type that TorchRec has a sharder for: planned, or refused with a sentence.

Names are those of the classes; 'quant.' stands before classes of torchrec.quant, whose names others share.
"""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsmith.errors import UsageError

Planned = EmbeddingBagCollection | EmbeddingCollection


@dataclass(frozen=True)
class ModuleType:
    """What becomes of one type of module.

    words: how it is planned, for docs/torchrec.md; of refused ones why, and what to do instead. inner: the attribute
    that holds the collection whose tables are planned; '' for the module itself.
    """

    kind: Literal["planned", "refused"]
    words: str
    inner: str = ""


_INFERENCE = "it is for inference, which is not planned; leave its sharder out"
_MERGE = "plan it with TorchRec's planner and put its entry into the plan"
_PRUNES = f"it prunes rows in training, which is not counted; {_MERGE}"
_FIXED = "its optimizer is part of it; use an EmbeddingBagCollection and apply_optimizer_in_backward"
_ONE_HOST = "its tables and interaction belong on one host; leave its sharder out to plan its collections alone"
_POOL = "it has no tables; put an ObjectPoolShardingPlan into the plan beside ours"
_REMAPS = "row_wise only, as TorchRec shards it; what remaps its ids is kept free of tables on every device"

MODULE_TYPES: dict[str, ModuleType] = {
    "EmbeddingBagCollection": ModuleType("planned", "pooled tables"),
    "EmbeddingCollection": ModuleType("planned", "sequence tables"),
    "FeatureProcessedEmbeddingBagCollection": ModuleType(
        "planned",
        "as its weighted collection; its processors are dense parameters, which the reserve counts",
        "_embedding_bag_collection",
    ),
    "ManagedCollisionEmbeddingBagCollection": ModuleType("planned", _REMAPS, "_embedding_module"),
    "ManagedCollisionEmbeddingCollection": ModuleType("planned", _REMAPS, "_embedding_module"),
    "ManagedCollisionCollection": ModuleType(
        "refused", "the sharder of the managed-collision collection around it shards it; leave its own sharder out"
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
    """The collection whose tables are planned: the module itself, or the one inside.

    Raises:
        UsageError: the module is of a type that is not planned; the message says what to do instead.
    """
    name = type_name(type(module))
    known = MODULE_TYPES.get(name, UNKNOWN_MODULE)
    found: Any = getattr(module, known.inner) if known.inner else module
    if known.kind == "planned" and type(found) in (EmbeddingBagCollection, EmbeddingCollection):
        return found
    raise UsageError(f"module '{path}' is a {name}, which RecSmith does not plan: {known.words}")


def remaps_ids(module: nn.Module) -> bool:
    """Whether a module is a managed-collision collection, whose ids are remapped where their rows are."""
    return type(module).__name__ in ("ManagedCollisionEmbeddingBagCollection", "ManagedCollisionEmbeddingCollection")
