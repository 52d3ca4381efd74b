"""Which parts of a run do not go together, and why; without torch.

A part is what a run, its data, its plan or its machine bring along. Each says of another in a sentence why it refuses
it (`refuses`), and `check_together` walks all pairs. docs/train.md has the table of them, which `pairs_table` makes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Protocol, cast

from recsmith._components import parsed
from recsmith.errors import UsageError
from recsmith.plans import Placement, Plan
from recsmith.sharding import KEY_VALUE
from recsmith.training.collectives import collectives_of
from recsmith.training.optimizers import IN_HALVES
from recsmith.training.run import BUILT_IN, Run, RunModel, RunTable, names_component
from recsmith.workloads.optimizers import COPYING_OPTIMIZERS, CPU_OPTIMIZERS, OPTIMIZERS, SPLIT_OPTIMIZERS

COPIED = "data_parallel"
SEQUENCES_ON_CPU = ("table_wise", "column_wise", "row_wise")  # FBGEMM 1.8 pools copies of sequence tables there
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


@dataclass(frozen=True)
class PlainPart:
    """A part that refuses nothing by itself."""

    label: str

    def refuses(self, _: Any, /) -> str | None:
        """Others say what they refuse."""
        return None


COMPRESSION, FEED = PlainPart("model.compression"), PlainPart("data.feed")
WEIGHTS, BUILT_IN_MODEL = PlainPart("weights of ids"), PlainPart("model.name of torchrec.models")
CPU, GPU = PlainPart("a CPU"), PlainPart("a GPU")
FP32_PRODUCTS = PlainPart("model.precision: fp32")
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
class PlannedTables:
    """Tables where the plan puts them, on a kind of device."""

    plan: Plan
    device: str

    @property
    def label(self) -> str:
        """Which sharding types the plan has."""
        return f"plan: {', '.join(sorted({each.sharding_type for each in self.plan.placements}))}"

    def refuses(self, _: Any, /) -> str | None:
        """Others say which plans they refuse."""
        return None


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
        """A CPU that FBGEMM does not have it for, and copied tables where it is fused only."""
        if other is CPU and self.name not in CPU_OPTIMIZERS:
            return (
                f"optimizers.sparse.name is {self.name}, which FBGEMM has on GPUs alone; on CPU use "
                f"{', '.join(CPU_OPTIMIZERS)}"
            )
        if isinstance(other, PlannedTables) and not OPTIMIZERS[self.name].copies:
            copied = [each.table for each in other.plan.placements if each.sharding_type == COPIED]
            return _fused_only(self.name, min(copied)) if copied else None
        return None


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
        """bf16 on a CPU, where FBGEMM does not look such rows up."""
        if other is CPU and self.data_type == "bf16":
            return (
                f"table '{self.table}' has data_type bf16, which FBGEMM has on GPUs alone; on CPU leave it out and "
                "write rows: split, whose lookups read bf16, or use fp16"
            )
        return None


@dataclass(frozen=True)
class SplitHalves:
    """Tables whose weights lie in two halves of 16 bits."""

    label: str = "rows: split"

    def refuses(self, other: Any, /) -> str | None:
        """Optimizers and tables that are not looked up and updated in halves, and what keeps no fp32 weights."""
        if isinstance(other, TableOptimizer) and other.name not in SPLIT_OPTIMIZERS:
            return f"rows: split has no form of {other.name}; use {' or '.join(SPLIT_OPTIMIZERS)}, or leave rows out"
        if isinstance(other, NarrowTables):
            return (
                f"rows: split keeps weights in fp32, and table '{other.table}' has data_type {other.data_type}; leave "
                "its data_type out, and lookups read bf16"
            )
        if isinstance(other, Sequences):
            return f"table '{other.table}' has pooling none, which rows: split does not have yet; leave rows out"
        if isinstance(other, Deduplicated):
            return "rows: split does not take deduplicated features yet; drop data.deduplicate, or leave rows out"
        if other is GPU:
            return "rows: split is for CPUs; on GPUs leave rows out and give tables data_type bf16"
        if isinstance(other, PlannedTables):
            copied = [each.table for each in other.plan.placements if each.sharding_type == COPIED]
            return _whole_copy(min(copied)) if copied else None
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


@dataclass(frozen=True)
class OnDisk:
    """Tables that the plan keeps on disk, by the name of the first, or none; and a run's rows."""

    table: str | None
    rows: Any

    @property
    def label(self) -> str:
        """The kernel, where a table has it."""
        return "plan: key_value" if self.table is not None else "plan: fused"

    def refuses(self, other: Any, /) -> str | None:
        """A CPU, where nobody is told in which folder the tables are, or a folder is given and no table goes there."""
        name, settings = parsed(self.rows, "rows")
        if other is not CPU or (name == "tiered" and "cache" in settings):
            return None
        if self.table is not None and name != "tiered":
            return (
                f"table '{self.table}' is on disk in the plan (key_value), and rows is {name}; write rows: {{name: "
                "tiered, folder: FOLDER}"
            )
        if self.table is None and name == "tiered":
            return (
                "rows is tiered, and the plan keeps no table on disk (key_value); give rows.cache a share, and all "
                "pooled tables are, or plan with --kernels fused,dense,key_value"
            )
        return None


@dataclass(frozen=True)
class TablesInFile:
    """Tables that are kept in a file."""

    label: str = "rows: tiered"

    def refuses(self, other: Any, /) -> str | None:
        """Copies of whole tables in memory."""
        if other is BACKGROUND:
            return "checkpoint.background copies whole tables to memory, which rows: tiered keeps out of it; drop it"
        return None


@dataclass(frozen=True)
class AheadOfBatches:
    """A pipeline under which ids cross ranks ahead of their batch."""

    label: str = "pipeline: sparse_dist"

    def refuses(self, other: Any, /) -> str | None:
        """Features whose bags are made equal in number when they are looked up."""
        if isinstance(other, Deduplicated):
            return f"pipeline is sparse_dist, which this model cannot have: {AHEAD}; write pipeline: base"
        return None


def model_parts(model: RunModel, *, tables: Sequence[RunTable], weighted: bool, deduplicated: bool) -> list[Part]:
    """The parts of a model. weighted: whether ids of its data have weights. deduplicated: whether any feature is."""
    sequences = [each.name for each in tables if each.pooling == "none"]
    found: list[tuple[bool, Part]] = [
        (bool(sequences), Sequences(next(iter(sequences), ""), model.name)),
        (bool(model.compression), COMPRESSION),
        (deduplicated, Deduplicated()),
        (model.table_module is not None, OwnTables()),
        (model.name in BUILT_IN, BUILT_IN_MODEL),
        (weighted, WEIGHTS),
    ]
    return [part for present, part in found if present]


def data_parts(run: Run) -> list[Part]:
    """The parts of a run's data, and of what reads them."""
    own = isinstance(run.data.train, dict) and "source" in cast(dict[str, Any], run.data.train)
    ahead = run.pipeline != "auto" and parsed(run.pipeline, "pipeline")[0] == "sparse_dist"
    found: list[tuple[bool, Part]] = [
        (own, OwnSource()),
        (run.data.feed is not None, FEED),
        (run.data.deduplicate != "off", Deduplicated()),
        (bool(run.model.compression), COMPRESSION),
        (True, Messages(run.comms)),
        *((True, part) for part in row_parts(run)),
        (ahead and run.data.deduplicate != "auto", AheadOfBatches()),
    ]
    return [part for present, part in found if present]


def placed_parts(run: Run, plan: Plan, device: str) -> list[Part]:
    """The parts of a run under a plan, on a kind of device."""
    sequences = sorted(table.name for table in plan.workload.tables if not table.pooled)
    named = sorted(((table.data_type, table.name) for table in plan.workload.tables), reverse=True)
    narrow = {kind: name for kind, name in named if kind != "fp32"}  # the first of each
    stored = sorted(each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name)
    return [
        CPU if device == "cpu" else GPU, TableOptimizer(run.optimizers.sparse.name), Messages(run.comms),
        *(Sequences(name, run.model.name) for name in sequences[:1]), PlannedTables(plan, device),
        *(NarrowTables(name, kind) for kind, name in narrow.items()), *row_parts(run),
        *([FP32_PRODUCTS] if run.model.precision == "fp32" else []),
        *([NarrowLayers(run.optimizers.dense.name)] if run.optimizers.dense.name in IN_HALVES else []),
        *([OnDisk(next(iter(stored), None), run.rows)] if stored or parsed(run.rows, "rows")[0] == "tiered" else []),
        *([BACKGROUND] if run.checkpoint is not None and run.checkpoint.background else []),
    ]  # fmt: skip


def row_parts(run: Run) -> list[Part]:
    """Who holds the rows of a run, where that refuses anything."""
    known: dict[str, Part] = {"tiered": TablesInFile(), "split": SplitHalves()}
    name = parsed(run.rows, "rows")[0]
    return [known[name]] if name in known else []


def refusals(parts: Sequence[Part]) -> Iterator[str]:
    """What parts say of others that they do not go with."""
    for part, other in permutations(parts, 2):
        sentence = part.refuses(other)
        if sentence is not None:
            yield sentence


def check_together(parts: Sequence[Part]) -> None:
    """UsageError of the first pair of parts that do not go together."""
    for sentence in refusals(parts):
        raise UsageError(sentence)


def _pooled_copy(placed: PlannedTables) -> str | None:
    """A sequence table that is copied to every rank on CPU: FBGEMM pools its rows there."""
    sequences = {table.name for table in placed.plan.workload.tables if not table.pooled}
    found = (each for each in placed.plan.placements if each.table in sequences)
    return next((_pools(each) for each in found if each.sharding_type not in SEQUENCES_ON_CPU), None)


def _pools(placement: Placement) -> str:
    return (
        f"table '{placement.table}' has pooling none and is {placement.sharding_type} in the plan, and "
        f"FBGEMM pools such a copy on CPU; use a plan of {', '.join(SEQUENCES_ON_CPU)} for it"
    )


def _fused_only(name: str, table: str) -> str:
    return (
        f"{name} is fused only, and the plan copies table {table} to every rank; "
        f"use {', '.join(COPYING_OPTIMIZERS)}, or a plan without data_parallel"
    )


def _whole_copy(table: str) -> str:
    return (
        f"rows: split has no copies, and the plan copies table {table} to every rank; use a plan without "
        "data_parallel, or leave rows out"
    )


def pairs_table(parts: Sequence[Part]) -> str:
    """Pairs of these parts that do not go together, as a table in Markdown."""
    lines = ["| part | does not go with | because |", "|---|---|---|"]
    for part, other in permutations(parts, 2):
        sentence = part.refuses(other)
        if sentence is not None:
            lines.append(f"| {part.label} | {other.label} | {sentence} |")
    return "\n".join(lines)
