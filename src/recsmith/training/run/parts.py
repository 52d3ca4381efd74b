"""The parts of a job that RecSmith itself defines: what a run, its data, plan and machine contribute; without torch.

Most pairs of parts that cannot be combined follow from what each part owns, needs and lacks (seams/capabilities.py); a
part's `refuses` covers the rest. refusals.py collects the parts of a run and checks all pairs. Parts of systems are in
their folders.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith._components import parsed
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.run import names_component
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import NOTHING, Capabilities, PlainPart, RefusesNothing
from recsmith.workloads.optimizers import COPYING_OPTIMIZERS, CPU_OPTIMIZERS, OPTIMIZERS, SYNCED_OPTIMIZERS

if TYPE_CHECKING:
    from recsmith.training.run.run import Run

COPIED = "data_parallel"
SEQUENCES_ON_CPU = ("table_wise", "column_wise", "row_wise")  # on CPU, FBGEMM 1.8 pools copied sequence tables


FEED = PlainPart("data.feed", needs=Capabilities({job.FORMATS}))
WEIGHTS, BUILT_IN_MODEL = PlainPart("weights of ids"), PlainPart("model.name of torchrec.models")
CPU = PlainPart("a CPU", lacks=Capabilities({job.ON_GPU}), stands="this job is on CPUs")
GPU = PlainPart("a GPU", lacks=Capabilities({job.ON_CPU}), stands="this job is on GPUs")
FP32_PRODUCTS = PlainPart(
    "model.precision: fp32", lacks=Capabilities({job.BF16_PRODUCTS_NEEDED}), stands="model.precision is fp32"
)
BF16_PRODUCTS = PlainPart(
    "model.precision: bf16", Capabilities({job.PRODUCTS}), lacks=Capabilities({job.FP32_PRODUCTS_NEEDED}),
    stands="model.precision is bf16",
)  # fmt: skip
SOFTMAX = PlainPart("model.loss: softmax", Capabilities({job.LOSS}))
SAMPLE_WEIGHTS = PlainPart("weights of samples", Capabilities({job.LOSS}))
TASKS = PlainPart("model.tasks", Capabilities({job.LOSS}))
TWO_TOWER = PlainPart(
    "model.name: two_tower", needs=Capabilities({job.BAGS}), lacks=Capabilities({job.ALONE}),
    stands="model.name is two_tower, which compares samples",
)  # fmt: skip
NO_LAYERS = PlainPart("a model without dense layers", lacks=Capabilities({job.MATRICES}), stands="the model has none")
BACKGROUND = PlainPart("checkpoint.background", Capabilities({job.COPIES}))
PUBLISHED = PlainPart("checkpoint.publish", Capabilities({job.CHECKPOINTS}))
OWN_TABLES = PlainPart("model.table_module", Capabilities({job.TABLES}))
OWN_SOURCE = PlainPart(
    "data.train: {source: ...}", lacks=Capabilities({job.FORMATS}), stands="data.train names a source"
)
INITIAL = PlainPart(
    "model.initial", needs=Capabilities({job.TABLES}), lacks=Capabilities({job.USUAL_START}),
    stands="model.initial says how some start",
)  # fmt: skip
RATES = PlainPart(
    "optimizers.sparse.tables", lacks=Capabilities({job.ONE_RATE}), stands="optimizers.sparse.tables gives some others",
)  # fmt: skip
CHANGES = PlainPart("data.batch_changes", needs=Capabilities({job.ONE_BATCH}))
ACCUMULATED = PlainPart(
    "pipeline: accumulated", Capabilities({job.STEP}), lacks=Capabilities({job.ONE_BATCH}),
    stands="pipeline accumulated takes several batches",
)  # fmt: skip
AHEAD_OF_BATCHES = PlainPart("pipeline: sparse_dist", Capabilities({job.EXCHANGE}))


def checkpoint_parts(run: "Run") -> list[PlainPart]:
    """The parts that a run's checkpoint settings add: background writing and publishing."""
    said = run.checkpoint
    found = {BACKGROUND: said is not None and said.background, PUBLISHED: said is not None and said.publish is not None}
    return [part for part, there in found.items() if there]


@dataclass(frozen=True)
class SharedFeature(RefusesNothing):
    """A feature that several tables look up, so that its ids may be handled differently for each table."""

    needs: ClassVar[Capabilities] = Capabilities({job.TABLES, job.BAGS, job.IDS})
    lacks: ClassVar[Capabilities] = Capabilities({job.ONE_TABLE})
    feature: str
    label: str = "a feature in two tables"

    @property
    def cures(self) -> Mapping[str, str]:
        """The fix: look the feature up in one table."""
        return {job.TABLES: f"look '{self.feature}' up in one table, or leave the other out"}

    @property
    def stands(self) -> str:
        """Names the shared feature."""
        return f"several tables look '{self.feature}' up"


@dataclass(frozen=True)
class OwnStep(RefusesNothing):
    """A training step made by a class of the user's."""

    owns: ClassVar[Capabilities] = Capabilities({job.STEP})
    name: str
    label: str = "pipeline: module:Class"


@dataclass(frozen=True)
class PlannedTables(RefusesNothing):
    """The tables as the plan places them, on a kind of device."""

    plan: Plan
    device: str

    @property
    def label(self) -> str:
        """The sharding types that occur in the plan."""
        return f"plan: {', '.join(sorted({each.sharding_type for each in self.plan.placements}))}"

    @property
    def copied(self) -> str | None:
        """The first table, by name, that is copied to every rank; None if no table is."""
        return min((each.table for each in self.plan.placements if each.sharding_type == COPIED), default=None)

    @property
    def lacks(self) -> Capabilities:
        """Lacks one place for each row, if a table is copied."""
        return Capabilities({job.ONE_PLACE}) if self.copied else NOTHING

    @property
    def stands(self) -> str:
        """Names the table that is copied."""
        return f"the plan copies table {self.copied} to every rank"


@dataclass(frozen=True)
class SeveralGroups:
    """A 2D plan: tables are sharded within several groups of ranks, whose copies are averaged at intervals."""

    owns: ClassVar[Capabilities] = Capabilities({job.ROWS})
    needs: ClassVar[Capabilities] = Capabilities(
        {job.TABLES, job.BAGS, job.IDS, job.LAYERS, job.LAYER_WEIGHTS, job.STEP, job.COPIES, job.BETWEEN,
         job.AVERAGED}
    )  # fmt: skip
    cures: ClassVar[Mapping[str, str]] = {job.AVERAGED: f"use {', '.join(SYNCED_OPTIMIZERS)}, or a plan of one group"}
    label: str = "a plan of sharding groups"

    def refuses(self, other: Any, /) -> str | None:
        """Refuses collectives other than the quantised ones.

        They would sum over all ranks what each sharding group holds separately.
        """
        if isinstance(other, Messages) and names_component(other.comms) and other.label != "comms: quantised":
            return f"{other.label} does not go with {self.label} yet; leave one of them out"
        return None


@dataclass(frozen=True)
class Sequences:
    """A table that is not pooled, and the name of the model that reads it."""

    lacks: ClassVar[Capabilities] = Capabilities({job.POOLED})
    table: str
    model: str
    label: str = "pooling: none"

    @property
    def stands(self) -> str:
        """Names the table that is not pooled."""
        return f"table '{self.table}' has pooling none"

    def refuses(self, other: Any, /) -> str | None:
        """Refuses models that pool all tables, weights of ids, and copies on a CPU."""
        if other is BUILT_IN_MODEL:
            return f"{self.model} pools all its tables, and '{self.table}' has pooling none; name a model of yours"
        if other is WEIGHTS:
            return f"table '{self.table}' has pooling none, and the data's ids have weights; leave one of them out"
        return _pooled_copy(other) if isinstance(other, PlannedTables) and other.device == "cpu" else None


@dataclass(frozen=True)
class TableOptimizer(RefusesNothing):
    """The optimizer of embedding tables: FBGEMM has some only on GPUs, and some only for sharded tables."""

    cures: ClassVar[Mapping[str, str]] = {
        job.ON_GPU: f"on CPU use {', '.join(CPU_OPTIMIZERS)}",
        job.ONE_PLACE: f"use {', '.join(COPYING_OPTIMIZERS)}, or a plan without data_parallel",
    }
    name: str

    @property
    def label(self) -> str:
        """The run's key and the optimizer's name."""
        return f"optimizers.sparse.name: {self.name}"

    @property
    def lacks(self) -> Capabilities:
        """State that TorchRec averages over sharding groups, if the optimizer has none."""
        return NOTHING if self.name in SYNCED_OPTIMIZERS else Capabilities({job.AVERAGED})

    @property
    def stands(self) -> str:
        """Names the optimizer."""
        return f"optimizers.sparse.name is {self.name}, whose state TorchRec's DMPCollection leaves apart"

    @property
    def needs(self) -> Capabilities:
        """A GPU, and each row in one place, if the optimizer requires them."""
        found = {job.ON_GPU: self.name not in CPU_OPTIMIZERS, job.ONE_PLACE: not OPTIMIZERS[self.name].copies}
        return Capabilities(need for need, needed in found.items() if needed)


@dataclass(frozen=True)
class Messages:
    """The encoding of embeddings and gradients that are sent between ranks."""

    comms: Any

    @property
    def label(self) -> str:
        """The run's key and its value, or the component's name."""
        name = parsed(self.comms, "comms")[0] if names_component(self.comms) else self.comms.forward
        return f"comms: {name}"

    @property
    def needs(self) -> Capabilities:
        """What the collectives need."""
        return getattr(collectives_of(self.comms), "needs", NOTHING)

    def refuses(self, other: Any, /) -> str | None:
        """Refuses plans that the collectives cannot carry."""
        return collectives_of(self.comms).refuses(other.plan) if isinstance(other, PlannedTables) else None


def not_as_plain(comms: Any, system: str, why_not_int8: str) -> str | None:
    """Why a system that takes only plain codecs without int8 cannot have these messages; None if it can."""
    if names_component(comms) and (name := parsed(comms, "comms")[0]) != "quantised":
        return f"comms: {name} does not go with {system} yet; leave one of them out"
    made: Any = collectives_of(comms)
    return why_not_int8 if "int8" in (made.forward, made.backward) else None


@dataclass(frozen=True)
class NarrowTables:
    """Tables whose weights are narrower than fp32: the first table's name, and the data type."""

    lacks: ClassVar[Capabilities] = Capabilities({job.FP32_TABLES})
    table: str
    data_type: str = "bf16"

    @property
    def label(self) -> str:
        """The run's key and its value."""
        return f"data_type: {self.data_type}"

    @property
    def stands(self) -> str:
        """Names the table and its data type."""
        return f"table '{self.table}' has data_type {self.data_type}"

    def refuses(self, other: Any, /) -> str | None:
        """Refuses bf16, which FBGEMM's training kernels cannot look up; they take fp32, fp16 and bytes."""
        if other not in (CPU, GPU) or self.data_type != "bf16":
            return None
        halves = "use fp16, or leave it out and keep rows in halves (docs/precision.md), whose lookups read bf16"
        return (
            f"table '{self.table}' has data_type bf16, in which FBGEMM trains no tables; "
            f"{f'on CPU {halves}' if other is CPU else 'on GPUs use fp16'}"
        )


def _pooled_copy(placed: PlannedTables) -> str | None:
    """Refuses a sequence table that is copied to every rank on CPU, where FBGEMM pools its rows; None if none is."""
    sequences = {table.name for table in placed.plan.workload.tables if not table.pooled}
    found = (each for each in placed.plan.placements if each.table in sequences)
    odd = next((each for each in found if each.sharding_type not in SEQUENCES_ON_CPU), None)
    return odd and (
        f"table '{odd.table}' has pooling none and is {odd.sharding_type} in the plan, and FBGEMM pools such a copy on "
        f"CPU; use a plan of {', '.join(SEQUENCES_ON_CPU)} for it"
    )
