"""Which parts of a run cannot be combined, and why; without torch.

`check_together` checks all pairs of a run's parts (parts.py, and those of systems): what a part refuses itself, what it
needs and another part owns or lacks, and what both parts own (seams/capabilities.py). docs/reference/run.md has the
table of pairs, which `pairs_table` makes.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, cast

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.training.models import POOLED_MODELS
from recsmith.training.run import BUILT_IN, Run, RunModel, RunTable
from recsmith.training.run import parts as core
from recsmith.training.run.tables import shared_features
from recsmith.training.seams import capabilities as job
from recsmith.training.seams import systems
from recsmith.training.seams.capabilities import Capabilities, Part, PlainPart


def model_parts(model: RunModel, *, tables: Sequence[RunTable], weighted: bool = False) -> list[Part]:
    """The parts of a model. weighted: whether ids of its data have weights."""
    sequences = [each.name for each in tables if each.pooling == "none"]
    twice = shared_features(tables)
    built = [part for each in systems() for part in each.table_parts(model)]
    named = any(job.key_of(part) == "model.table_module" for part in built)
    found: list[tuple[bool, Part]] = [
        (bool(sequences), core.Sequences(next(iter(sequences), ""), model.name)),
        *((True, part) for part in built),
        (model.table_module is not None and not named, core.OWN_TABLES),
        (model.name in (*BUILT_IN, *POOLED_MODELS), core.BUILT_IN_MODEL),
        (model.name == "two_tower", core.TWO_TOWER),
        (bool(twice), core.SharedFeature(next(iter(twice), ""))),
        (bool(model.initial), core.INITIAL),
        (weighted, core.WEIGHTS),
        *((True, part) for part in loss_parts(model)),
    ]
    return [part for present, part in found if present]


def loss_parts(model: RunModel) -> list[Part]:
    """The parts of a model's loss; none if the loss is the same binary cross entropy for all labels."""
    return [*([core.SOFTMAX] if model.loss == "softmax" else []), *([core.TASKS] if model.tasks else [])]


def data_parts(run: Run) -> list[Part]:
    """The parts of a run's data, and of what reads the data."""
    own = isinstance(run.data.train, dict) and "source" in cast(dict[str, Any], run.data.train)
    step = run.step_named[0]
    found: list[tuple[bool, Part]] = [
        (own, core.OWN_SOURCE),
        (run.data.feed is not None, core.FEED),
        *((True, part) for each in systems() for part in each.data_parts(run)),
        (":" in step, core.OwnStep(step)),
        *((True, part) for part in step_parts(run)),
        (bool(run.systems), PlainPart(f"systems: {', '.join(run.systems)}", Capabilities({job.BETWEEN}))),
        (True, core.Messages(run.comms)),
        *((True, part) for part in row_parts(run)),
        (step == "sparse_dist", core.AHEAD_OF_BATCHES),
    ]
    return [part for present, part in found if present]


def step_parts(run: Run) -> list[Part]:
    """The parts of a run that concern batches of a step and learning rates within it."""
    accumulated = run.step_named[0] == "accumulated"
    found: list[tuple[bool, Part]] = [
        (accumulated, core.ACCUMULATED),
        (bool(run.data.batch_changes), core.CHANGES),
        (bool(run.optimizers.sparse.tables), core.RATES),
    ]
    return [part for present, part in found if present]


def row_parts(run: Run) -> list[Part]:
    """The parts of a run's row store, if that refuses anything."""
    return [part for each in systems() for part in each.row_parts(run)]


def device_parts(run: Run, device: str) -> list[Part]:
    """The parts of a run that depend on the kind of device but not on the plan."""
    return [core.CPU if device == "cpu" else core.GPU, *map(core.TableOptimizer, run.optimizers.sparse.names)]


def placed_parts(run: Run, plan: Plan, device: str) -> list[Part]:
    """The parts of a run that depend on its plan and kind of device."""
    sequences = sorted(table.name for table in plan.workload.tables if not table.pooled)
    named = sorted(((table.data_type, table.name) for table in plan.workload.tables), reverse=True)
    narrow = {kind: name for kind, name in named if kind != "fp32"}  # the first table of each data type
    return [
        *device_parts(run, device), core.Messages(run.comms),
        *(core.Sequences(name, run.model.name) for name in sequences[:1]), core.PlannedTables(plan, device),
        *(core.NarrowTables(name, kind) for kind, name in narrow.items()), *row_parts(run),
        core.FP32_PRODUCTS if run.model.precision == "fp32" else core.BF16_PRODUCTS,
        *trained_by(run),
        *(part for each in systems() for part in each.placed_parts(run, plan)),
        *core.checkpoint_parts(run),
        *([core.SeveralGroups(), *model_parts(run.model, tables=run.model.tables), *data_parts(run)]
          if plan.cluster.replication is not None else []),  # and all parts of the run file
    ]  # fmt: skip


def layer_parts(run: Run, shapes: Sequence[Sequence[int]]) -> list[Part]:
    """The parts of a run's dense layers. shapes: shapes of the dense parameters."""
    return [*trained_by(run), *([core.NO_LAYERS] if all(len(shape) < 2 for shape in shapes) else [])]


def trained_by(run: Run, *, undecided: bool = False) -> list[Part]:
    """The parts that change how dense layers are trained: the loss, the batches of a step, and systems.

    undecided: also count systems that `auto` may switch on.
    """
    own = [*loss_parts(run.model), *step_parts(run)]
    return [*own, *(part for each in systems() for part in each.layer_parts(run, undecided=undecided))]


def refusals(parts: Sequence[Part]) -> Iterator[str]:
    """Why parts cannot be combined, one sentence for each pair."""
    return (sentence for _, _, sentence in refused_pairs(parts))


def refused_pairs(parts: Sequence[Part]) -> Iterator[tuple[Part, Part, str]]:
    """(part, other part, why they cannot be combined); a part's own refusals come first."""
    reported = set[
        frozenset[int]
    ]()  # each pair is reported once; a part that was found twice can be combined with itself
    for refused in (_refused, job.owned_by_both):
        for part, other in permutations(parts, 2):
            pair = frozenset((id(part), id(other)))
            if part != other and pair not in reported and (why := refused(part, other)) is not None:
                reported.add(pair)
                yield part, other, why


def _refused(part: Part, other: Part) -> str | None:
    """Why a part cannot be combined with another one: its own refusal, or an unmet need."""
    return part.refuses(other) or job.unmet_need(part, other)


def check_together(parts: Sequence[Part]) -> None:
    """UsageError for the first pair of parts that cannot be combined."""
    for sentence in refusals(parts):
        raise UsageError(sentence)


def pairs_table(parts: Sequence[Part]) -> str:
    """A Markdown table that lists, for each part, the parts it cannot be combined with."""
    beside: dict[str, list[str]] = {part.label: [] for part in parts}
    for part, other, _ in refused_pairs(parts):
        for label, name in ((part.label, other.label), (other.label, part.label)):
            if name not in beside[label]:
                beside[label].append(name)
    rows = (f"| {label} | {'; '.join(names)} |" for label, names in beside.items() if names)
    return "\n".join(["| part | does not go with |", "|---|---|", *rows])
