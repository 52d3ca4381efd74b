"""What a run, its data, its plan or its machine bring along, and what each of these parts refuses; without torch.

A part says of another in a sentence why it does not go with it (`refuses`); refusals.py finds the parts of a run and
asks all pairs. Who holds the rows of tables is in stores/parts.py.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from recsmith._components import parsed
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.run import names_component
from recsmith.workloads.optimizers import COPYING_OPTIMIZERS, CPU_OPTIMIZERS, OPTIMIZERS

COPIED = "data_parallel"
SEQUENCES_ON_CPU = ("table_wise", "column_wise", "row_wise")  # FBGEMM 1.8 pools copies of sequence tables there
PARKING = ("sgd", "adam", "adamw", "adagrad", "rmsprop")  # without a gradient and moments they leave a weight alone
AHEAD = "deduplicated features are padded to equal numbers of rows on all ranks when their batch trains"


class Part(Protocol):
    """Something that a run has, under the name that docs have for it."""

    @property
    def label(self) -> str:
        """What people call it: a key of the run, with its value where that matters."""
        ...

    def refuses(self, other: Any, /) -> str | None:
        """Why it does not go with another part, and what to do; None where it does."""
        ...


class RefusesNothing:
    """Of a part that others refuse, and that refuses nothing by itself."""

    def refuses(self, _: Any, /) -> str | None:
        """None: others say what they refuse."""
        return None


@dataclass(frozen=True)
class PlainPart(RefusesNothing):
    """A part that is its name."""

    label: str


COMPRESSION, FEED = PlainPart("model.compression"), PlainPart("data.feed")
WEIGHTS, BUILT_IN_MODEL = PlainPart("weights of ids"), PlainPart("model.name of torchrec.models")
CPU, GPU = PlainPart("a CPU"), PlainPart("a GPU")
FP32_PRODUCTS = PlainPart("model.precision: fp32")
BF16_PRODUCTS = PlainPart("model.precision: bf16")
NO_LAYERS = PlainPart("a model without dense layers")
BACKGROUND = PlainPart("checkpoint.background")


@dataclass(frozen=True)
class Deduplicated:
    """Features whose distinct bags alone are looked up."""

    label: str = "data.deduplicate"

    def refuses(self, other: Any, /) -> str | None:
        """Tables that are stored smaller."""
        if other is COMPRESSION:
            return "data.deduplicate and model.compression do not go together yet; drop one of them"
        return None


@dataclass(frozen=True)
class OwnTables:
    """Pooled tables that a class of the user's builds."""

    label: str = "model.table_module"

    def refuses(self, other: Any, /) -> str | None:
        """What would build them too."""
        if other is COMPRESSION or isinstance(other, Deduplicated):
            return f"model.table_module builds the tables, which {other.label} would too; drop one of them"
        return None


@dataclass(frozen=True)
class OwnSource:
    """Batches of a class of the user's."""

    label: str = "data.train: {source: ...}"

    def refuses(self, other: Any, /) -> str | None:
        """What formats alone have."""
        if other is FEED or isinstance(other, Deduplicated):
            return "data.feed and data.deduplicate go with formats, and data.train names a source; drop them"
        return None


@dataclass(frozen=True)
class InPeriods:
    """Samples that come period after period."""

    label: str = "data.periods"

    def refuses(self, other: Any, /) -> str | None:
        """Sources of the user's, whose order is their own."""
        if isinstance(other, OwnSource):
            return "data.periods cuts data of a format, and data.train names a source, whose order is its own; drop one"
        return None


@dataclass(frozen=True)
class MixedPeriods:
    """Steps that take a batch of each of several periods, whose losses are weighted."""

    update: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"data.periods.update: {self.update}"

    def refuses(self, other: Any, /) -> str | None:
        """Features that are looked up once for several samples, and steps of the user's, whose loss is their own."""
        if isinstance(other, Deduplicated):
            return (
                f"data.periods.update {self.update} weights the losses of samples, and data.deduplicate does not keep "
                "the samples of several periods apart yet; drop one of them"
            )
        if isinstance(other, OwnStep | LayersByStep):
            return (
                f"data.periods.update {self.update} weights the losses of samples, and pipeline {other.name} has a "
                "loss of its own, which may not; write incremental or window, or pipeline: base"
            )
        return None


@dataclass(frozen=True)
class OwnStep(RefusesNothing):
    """A step that a class of the user's makes."""

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
        if other is COMPRESSION or isinstance(other, Deduplicated):
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
class NarrowLayers:
    """Dense layers whose weights are bf16, by the optimizer that keeps the rest of them."""

    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"optimizers.dense.name: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """Products in fp32, which bf16 weights do not go into, and gradients whose largest cross in fp32."""
        if other is FP32_PRODUCTS:
            return f"optimizers.dense.name {self.name} makes dense layers bf16; write model.precision: bf16 beside it"
        if isinstance(other, Messages) and getattr(collectives_of(other.comms), "dense", None) is not None:
            return (
                f"comms.dense sends gradients of fp32, and optimizers.dense.name {self.name} makes them bf16; drop one "
                "of them"
            )
        return None


@dataclass(frozen=True)
class FactoredLayers:
    """Dense layers by Shampoo, which keeps statistics of their rows and columns."""

    label: str = "optimizers.dense.name: shampoo"

    def refuses(self, other: Any, /) -> str | None:
        """Models without any, and weights in bf16."""
        if other is NO_LAYERS:
            return "optimizers.dense.name is shampoo, and the model has no dense layer with a matrix; use adam"
        if isinstance(other, NarrowLayers):
            return (
                f"shampoo takes roots in fp32, and optimizers.dense.name {other.name} makes dense layers bf16; give "
                "its arguments another optimizer, or train the layers in fp32"
            )
        return None


@dataclass(frozen=True)
class LayerOptimizer(RefusesNothing):
    """An optimizer of torch.optim, or of yours, for dense layers, and whether weights decay by themselves."""

    name: str
    weight_decay: float = 0.0

    @property
    def label(self) -> str:
        """Its key and name."""
        decays = f", weight_decay {self.weight_decay:g}" if self.weight_decay else ""
        return f"optimizers.dense.name: {self.name}{decays}"


@dataclass(frozen=True)
class FewerUnits:
    """Dense layers of which some units are parked for a time, without gradients or moments."""

    label: str = "model.narrow"

    def refuses(self, other: Any, /) -> str | None:
        """What moves weights that have no gradient, or keeps state of another shape than they have."""
        if isinstance(other, LayerOptimizer) and other.weight_decay:
            return (
                f"optimizers.dense has weight_decay {other.weight_decay:g}, which would shrink the weights of units "
                "that model.narrow parks; write arguments: {weight_decay: 0}, or leave model.narrow out"
            )
        if isinstance(other, LayerOptimizer) and other.name not in PARKING:
            return (
                f"optimizers.dense.name is {other.name}, and model.narrow knows what becomes of parked units under "
                f"{', '.join(PARKING)} alone; use one of these, or leave model.narrow out"
            )
        if isinstance(other, FactoredLayers | NarrowLayers | LayersByStep):
            return f"{other.label} does not go with model.narrow, whose parked units have no state; drop one of them"
        return None


@dataclass(frozen=True)
class LayersByStep:
    """A pipeline that trains dense layers itself, by gradients and Hessians of the whole sample."""

    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"pipeline: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """Models without layers, precisions in which a loss is not surely lower, and what trains layers too."""
        if other is NO_LAYERS:
            return f"pipeline is {self.name}, which trains dense layers, and the model has none; write pipeline: base"
        if other is BF16_PRODUCTS or isinstance(other, NarrowLayers):
            return (
                f"pipeline is {self.name}, whose line search compares losses that bf16 cannot tell apart; train dense "
                "layers in fp32"
            )
        if isinstance(other, UnusedSettings):
            return (
                f"pipeline is {self.name}, which trains dense layers by a line search of its own, so that "
                f"{other.label} would have no effect; leave {'it' if len(other.names) == 1 else 'them'} out"
            )
        if isinstance(other, FactoredLayers):
            return f"pipeline is {self.name}, and {other.label} would train the same layers; drop one of them"
        if isinstance(other, Messages) and getattr(collectives_of(other.comms), "dense", None) is not None:
            return (
                f"comms.dense sends the largest gradients, and pipeline {self.name} needs sums of all; drop one of them"
            )
        return None


@dataclass(frozen=True)
class UnusedSettings(RefusesNothing):
    """Settings of optimizers that a run gives and its pipeline does not use, such as optimizers.dense.clip_norm."""

    names: tuple[str, ...]

    @property
    def label(self) -> str:
        """Their keys."""
        return ", ".join(self.names)


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
        if isinstance(other, Deduplicated) and getattr(made, "pooled", None) is not None:
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
class AheadOfBatches:
    """A pipeline under which ids cross ranks ahead of their batch."""

    label: str = "pipeline: sparse_dist"

    def refuses(self, other: Any, /) -> str | None:
        """Features whose bags are made equal in number when they are looked up."""
        if isinstance(other, Deduplicated):
            return f"pipeline is sparse_dist, which this model cannot have: {AHEAD}; write pipeline: base"
        return None


def is_among(part: Any, parts: tuple[Any, ...]) -> bool:
    """Whether a part of a run is one of these, or of one of their classes."""
    return any(part is each or (isinstance(each, type) and isinstance(part, each)) for each in parts)


def _pooled_copy(placed: PlannedTables) -> str | None:
    """A sequence table that is copied to every rank on CPU: FBGEMM pools its rows there."""
    sequences = {table.name for table in placed.plan.workload.tables if not table.pooled}
    found = (each for each in placed.plan.placements if each.table in sequences)
    odd = next((each for each in found if each.sharding_type not in SEQUENCES_ON_CPU), None)
    return odd and (
        f"table '{odd.table}' has pooling none and is {odd.sharding_type} in the plan, and FBGEMM pools such a copy on "
        f"CPU; use a plan of {', '.join(SEQUENCES_ON_CPU)} for it"
    )
