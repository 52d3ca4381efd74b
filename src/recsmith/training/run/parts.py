"""What a run, its data, its plan or its machine bring along, and what each of these parts refuses; without torch.

A part says of another in a sentence why it does not go with it (`refuses`), and what it owns of a job, which no other
part can own beside it. refusals.py finds the parts of a run and asks all pairs. Parts of systems are in their folders.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from recsmith._components import parsed
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.run import names_component
from recsmith.workloads.optimizers import COPYING_OPTIMIZERS, CPU_OPTIMIZERS, OPTIMIZERS

COPIED = "data_parallel"
SEQUENCES_ON_CPU = ("table_wise", "column_wise", "row_wise")  # FBGEMM 1.8 pools copies of sequence tables there

# What a part of a job may say that no other part can say beside it; errors have it as it stands here.
TABLES, BAGS, IDS = "how tables are built", "which bags are looked up", "which rows ids stand for"
LAYERS, LAYER_WEIGHTS = "how dense layers are trained", "how the weights of dense layers are kept"
STEP, ORDER, PRODUCTS = "how a step is made", "in which order samples come", "how dense layers are multiplied"
ROWS, EXCHANGE, COPIES = "where the rows of tables are", "when ids cross ranks", "when whole tables are copied"
BETWEEN = "what is done between steps"
OF_ONE_MODEL = frozenset({TABLES, BAGS, IDS, ROWS, LAYERS, LAYER_WEIGHTS, STEP, ORDER, PRODUCTS, COPIES, BETWEEN})
Owned = frozenset[str]
NOTHING = Owned()


class Part(Protocol):
    """Something that a run has, under the name that docs have for it."""

    @property
    def label(self) -> str:
        """What people call it: a key of the run, with its value where that matters."""
        ...

    def refuses(self, other: Any, /) -> str | None:
        """Why it does not go with another part, and what to do; None where it does."""
        ...


def owns(part: Any, *things: str) -> bool:
    """Whether a part owns one of these."""
    return not getattr(part, "owns", NOTHING).isdisjoint(things)


class RefusesNothing:
    """Of a part that others refuse, and that refuses nothing by itself."""

    def refuses(self, _: Any, /) -> str | None:
        """None: others say what they refuse."""
        return None


@dataclass(frozen=True)
class PlainPart(RefusesNothing):
    """A part that is its name, and what it owns."""

    label: str
    owns: Owned = NOTHING


FEED = PlainPart("data.feed")
WEIGHTS, BUILT_IN_MODEL = PlainPart("weights of ids"), PlainPart("model.name of torchrec.models")
CPU, GPU = PlainPart("a CPU"), PlainPart("a GPU")
FP32_PRODUCTS = PlainPart("model.precision: fp32")
BF16_PRODUCTS = PlainPart("model.precision: bf16", Owned({PRODUCTS}))
NO_LAYERS = PlainPart("a model without dense layers")
BACKGROUND = PlainPart("checkpoint.background", Owned({COPIES}))


@dataclass(frozen=True)
class OwnTables:
    """Pooled tables that a class of the user's builds."""

    owns: ClassVar[Owned] = Owned({TABLES})
    label: str = "model.table_module"

    def refuses(self, other: Any, /) -> str | None:
        """What would build them too."""
        if owns(other, BAGS, IDS):
            return f"model.table_module builds the tables, which {other.label} would too; drop one of them"
        return None


@dataclass(frozen=True)
class OwnSource:
    """Batches of a class of the user's."""

    label: str = "data.train: {source: ...}"

    def refuses(self, other: Any, /) -> str | None:
        """What formats alone have."""
        if other is FEED or owns(other, BAGS):
            return "data.feed and data.deduplicate go with formats, and data.train names a source; drop them"
        return None


@dataclass(frozen=True)
class OwnStep(RefusesNothing):
    """A step that a class of the user's makes."""

    owns: ClassVar[Owned] = Owned({STEP})
    name: str
    label: str = "pipeline: module:Class"


@dataclass(frozen=True)
class PlannedTables(RefusesNothing):
    """Tables where the plan puts them, on a kind of device."""

    plan: Plan
    device: str

    @property
    def label(self) -> str:
        """Which sharding types the plan has."""
        return f"plan: {', '.join(sorted({each.sharding_type for each in self.plan.placements}))}"

    @property
    def copied(self) -> str | None:
        """The first table, by name, that every rank has a copy of."""
        return min((each.table for each in self.plan.placements if each.sharding_type == COPIED), default=None)


@dataclass(frozen=True)
class Sequences:
    """A table that is not pooled, and the name of its model."""

    table: str
    model: str
    label: str = "pooling: none"

    def refuses(self, other: Any, /) -> str | None:
        """Models that pool, tables that are stored or looked up in another way, weights, and copies on a CPU."""
        if other is BUILT_IN_MODEL:
            return f"{self.model} pools all its tables, and '{self.table}' has pooling none; name a model of yours"
        if owns(other, BAGS, IDS):
            return f"table '{self.table}' has pooling none, which {other.label} does not have yet; drop one of them"
        if other is WEIGHTS:
            return f"table '{self.table}' has pooling none, and the data's ids have weights; leave one of them out"
        return _pooled_copy(other) if isinstance(other, PlannedTables) and other.device == "cpu" else None


@dataclass(frozen=True)
class TableOptimizer:
    """The optimizer of embedding tables."""

    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"optimizers.sparse.name: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """A CPU that FBGEMM does not have it for, and copied tables, which it would train in another way."""
        if other is CPU and self.name not in CPU_OPTIMIZERS:
            return (
                f"optimizers.sparse.name is {self.name}, which FBGEMM has on GPUs alone; on CPU use "
                f"{', '.join(CPU_OPTIMIZERS)}"
            )
        if isinstance(other, PlannedTables) and other.copied and not OPTIMIZERS[self.name].copies:
            return (
                f"{self.name} trains sharded tables alone, and the plan copies table {other.copied} to every rank; "
                f"use {', '.join(COPYING_OPTIMIZERS)}, or a plan without data_parallel"
            )
        return None


@dataclass(frozen=True)
class Messages:
    """The form in which embeddings and gradients cross ranks."""

    comms: Any

    @property
    def label(self) -> str:
        """Its key and value, or its name where it is a component."""
        name = parsed(self.comms, "comms")[0] if names_component(self.comms) else self.comms.forward
        return f"comms: {name}"

    def refuses(self, other: Any, /) -> str | None:
        """Plans that its collectives refuse; features whose rows differ in number where their largest columns cross."""
        made: Any = collectives_of(self.comms)
        if owns(other, BAGS) and getattr(made, "pooled", None) is not None:
            return (
                "comms.pooled sends as many columns of each sample, and data.deduplicate looks up other numbers of "
                "rows on each rank; drop one of them"
            )
        return made.refuses(other.plan) if isinstance(other, PlannedTables) else None


def not_as_plain(comms: Any, system: str, why_not_int8: str) -> str | None:
    """Why messages do not go with a system that takes plain codecs alone, and of these no int8; None where they do."""
    if names_component(comms) and (name := parsed(comms, "comms")[0]) != "quantised":
        return f"comms: {name} does not go with {system} yet; leave one of them out"
    made: Any = collectives_of(comms)
    return why_not_int8 if "int8" in (made.forward, made.backward) else None


@dataclass(frozen=True)
class AheadOfBatches(RefusesNothing):
    """A pipeline under which ids cross ranks ahead of their batch."""

    owns: ClassVar[Owned] = Owned({EXCHANGE})
    label: str = "pipeline: sparse_dist"


@dataclass(frozen=True)
class NarrowTables:
    """Tables whose weights are narrower than fp32: the name of the first, and its data type."""

    table: str
    data_type: str = "bf16"

    @property
    def label(self) -> str:
        """Its key and value."""
        return f"data_type: {self.data_type}"

    def refuses(self, other: Any, /) -> str | None:
        """bf16, whose rows no training kernel of FBGEMM looks up: fp32, fp16 and bytes are what they take."""
        if other not in (CPU, GPU) or self.data_type != "bf16":
            return None
        halves = "leave it out and write rows: split, whose lookups read bf16, or use fp16"
        return (
            f"table '{self.table}' has data_type bf16, in which FBGEMM trains no tables; "
            f"{f'on CPU {halves}' if other is CPU else 'on GPUs use fp16'}"
        )


def _pooled_copy(placed: PlannedTables) -> str | None:
    """A sequence table that is copied to every rank on CPU: FBGEMM pools its rows there."""
    sequences = {table.name for table in placed.plan.workload.tables if not table.pooled}
    found = (each for each in placed.plan.placements if each.table in sequences)
    odd = next((each for each in found if each.sharding_type not in SEQUENCES_ON_CPU), None)
    return odd and (
        f"table '{odd.table}' has pooling none and is {odd.sharding_type} in the plan, and FBGEMM pools such a copy on "
        f"CPU; use a plan of {', '.join(SEQUENCES_ON_CPU)} for it"
    )
