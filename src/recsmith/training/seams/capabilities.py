"""What parts of a run own, need and lack, from which incompatible pairs follow; without torch.

A plain job provides everything: its tables are pooled and in fp32, its layers have gradients, and so on. A part *owns*
what no other part may decide as well. It *lacks* what a job with it does not provide. It *needs* what other parts may
own or lack. refusals.py (run/) checks all pairs: two owners of one thing, and a need that another part leaves unmet,
are each refused with one sentence made of the parts' labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Capabilities = frozenset[str]
NOTHING = Capabilities()

# What only one part can decide in a job. Error messages contain these texts as they are.
TABLES, BAGS, IDS = "how tables are built", "which bags are looked up", "which rows ids stand for"
LAYERS, LAYER_WEIGHTS = "how dense layers are trained", "how the weights of dense layers are kept"
STEP, ORDER, PRODUCTS = "how a step is made", "in which order samples come", "how dense layers are multiplied"
ROWS, EXCHANGE, COPIES = "where the rows of tables are", "when ids cross ranks", "when whole tables are copied"
BETWEEN, LOSS, START = "what is done between steps", "the loss of a sample", "the weights at the start"
CHECKPOINTS = "where checkpoints are"
OF_ONE_MODEL = Capabilities(
    {TABLES, BAGS, IDS, ROWS, LAYERS, LAYER_WEIGHTS, STEP, ORDER, PRODUCTS, COPIES, BETWEEN, LOSS, START, CHECKPOINTS}
)  # what a system with its own training needs from a plain job, until more was tried

# What one part may need and another one may lack.
POOLED, FP32_TABLES, ONE_PLACE = "pooled tables", "tables in fp32", "each row in one place"
FORMATS, ON_CPU, ON_GPU = "data in files of a format", "ranks on CPUs", "ranks on GPUs"
MATRICES, FP32_WEIGHTS = "a dense layer with a matrix", "weights of dense layers in fp32"
FP32_PRODUCTS_NEEDED, BF16_PRODUCTS_NEEDED = "products of dense layers in fp32", "products of dense layers in bf16"
ALONE = "samples that are learned each by itself"
USUAL_START = "tables that start as torchrec's do"
ONE_RATE = "one optimizer and learning rate of all tables"
ONE_TABLE = "each feature in one table"
ONE_BATCH = "steps of one batch"
AVERAGED = "an optimizer whose state groups average"
GRADIENTS = "gradients of dense layers that cross ranks"

ANYTHING = "*"  # key of `cures` for the advice that applies to any unmet need


class Part(Protocol):
    """Something that a run has, under the name that the docs use for it.

    In addition to `label` and `refuses`, a part may have `owns`, `needs` and `lacks`; `stands`, the words for what in
    the run or its data makes it lack something; and `cures`, the advice for each unmet need.
    """

    @property
    def label(self) -> str:
        """What people call the part: a key of the run, with its value if that matters."""
        ...

    def refuses(self, other: Any, /) -> str | None:
        """Why it cannot be combined with another part, if capabilities do not say so, and what to do; else None."""
        ...


class RefusesNothing:
    """Base of parts whose refusals all follow from what they own, need and lack."""

    def refuses(self, _: Any, /) -> str | None:
        """None: capabilities say everything."""
        return None


@dataclass(frozen=True)
class PlainPart(RefusesNothing):
    """A part that consists of its label and what it owns, needs and lacks; `stands` says why it lacks something."""

    label: str
    owns: Capabilities = NOTHING
    needs: Capabilities = NOTHING
    lacks: Capabilities = NOTHING
    stands: str = ""


def owned(part: Any) -> Capabilities:
    """What a part owns."""
    return getattr(part, "owns", NOTHING)


def owns(part: Any, *things: str) -> bool:
    """Whether a part owns at least one of these things."""
    return not owned(part).isdisjoint(things)


def owned_by_both(part: Any, other: Any) -> str | None:
    """Why two parts that own the same thing cannot be combined; None if they do not, or share a key of the run."""
    both = owned(part) & owned(other)
    if not both or key_of(part) == key_of(other):
        return None
    return f"{part.label} and {other.label} both say {min(both)}; leave one of them out"


def unmet_need(part: Any, other: Any) -> str | None:
    """Why a part cannot be combined with one that owns or lacks something it needs; None if all its needs are met."""
    needs: Capabilities = getattr(part, "needs", NOTHING)
    if lacking := needs & getattr(other, "lacks", NOTHING):
        need = min(lacking)
        return f"{part.label} needs {need}, and {other.stands}; {_cure(part, other, need)}"
    if taken := needs & owned(other):
        need = min(taken)
        return f"{other.label} changes {need}, which does not go with {part.label} yet; {_cure(part, other, need)}"
    return None


def _cure(part: Any, other: Any, need: str) -> str:
    cures: Mapping[str, str] = getattr(part, "cures", {})
    return cures.get(need) or cures.get(ANYTHING) or getattr(other, "instead", "leave one of them out")


def key_of(part: Part) -> str:
    """The key of the run that a part belongs to; a run has only one of the key's values."""
    return part.label.partition(": ")[0]
