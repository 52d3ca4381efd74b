"""Which parts of a run do not go together, and why; without torch.

Each part says of another in a sentence why it refuses it (run_parts.py, stores/parts.py), and `check_together` walks
all pairs. docs/train.md has the table of them, which `pairs_table` makes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import permutations
from typing import Any, cast

from recsmith._components import parsed
from recsmith.errors import MissingExtra, UsageError
from recsmith.plans import Plan
from recsmith.sharding import KEY_VALUE
from recsmith.training.optimizers import IN_HALVES
from recsmith.training.optimizers.settings import DenseOptimizer, RunOptimizers, SparseOptimizer
from recsmith.training.optimizers.shampoo_cost import AUTO, SHAMPOO
from recsmith.training.parts.arrays import TrainedTogether
from recsmith.training.parts.rows import NarrowTables, OnDisk, row_parts
from recsmith.training.parts.run import (
    BACKGROUND,
    BF16_PRODUCTS,
    BUILT_IN_MODEL,
    COMPRESSION,
    CPU,
    FEED,
    FP32_PRODUCTS,
    GPU,
    NO_LAYERS,
    WEIGHTS,
    AheadOfBatches,
    Deduplicated,
    FactoredLayers,
    FewerUnits,
    InPeriods,
    LayerOptimizer,
    LayersByStep,
    Messages,
    MixedPeriods,
    NarrowLayers,
    OwnSource,
    OwnStep,
    OwnTables,
    Part,
    PlannedTables,
    Sequences,
    TableOptimizer,
    UnusedSettings,
)
from recsmith.training.parts.servers import TablesOnServers, check_remote
from recsmith.training.parts.towers import TowersOfHosts, towers_of
from recsmith.training.run import BUILT_IN, Run, RunModel, RunTable
from recsmith.training.seams import SECOND_ORDER, tables_rest
from recsmith.training.settings.remote import RunRemote

ADAMW_DECAY = 0.01  # of torch.optim.AdamW, where it is given none


def model_parts(model: RunModel, *, tables: Sequence[RunTable], weighted: bool, deduplicated: bool) -> list[Part]:
    """The parts of a model. weighted: whether ids of its data have weights. deduplicated: whether any feature is."""
    sequences = [each.name for each in tables if each.pooling == "none"]
    towers = towers_of(model)
    found: list[tuple[bool, Part]] = [
        (bool(sequences), Sequences(next(iter(sequences), ""), model.name)),
        (bool(model.compression), COMPRESSION),
        (deduplicated, Deduplicated()),
        (model.table_module is not None, OwnTables() if towers is None else TowersOfHosts(towers=towers)),
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
        *((True, part) for part in period_parts(run)),
        (run.data.deduplicate != "off", Deduplicated()),
        (bool(run.model.compression), COMPRESSION),
        (True, Messages(run.comms)),
        *((True, part) for part in row_parts(run)),
        (ahead and run.data.deduplicate != "auto", AheadOfBatches()),
    ]
    return [part for present, part in found if present]


def period_parts(run: Run) -> list[Part]:
    """The parts of a run in periods; none of another one."""
    periods = run.data.periods
    if periods is None:
        return []
    step = "auto" if run.pipeline == "auto" else parsed(run.pipeline, "pipeline")[0]
    found: list[Part] = [InPeriods()]
    if periods.mixed > 1:
        found.append(MixedPeriods(parsed(periods.update, "data.periods.update")[0]))
    found += [OwnStep(step)] if ":" in step else []
    return [*found, *([LayersByStep(step)] if step in SECOND_ORDER else [])]


def device_parts(run: Run, device: str) -> list[Part]:
    """The parts of a run that go with a kind of device or not, whatever its plan is."""
    return [CPU if device == "cpu" else GPU, TableOptimizer(run.optimizers.sparse.name)]


def placed_parts(run: Run, plan: Plan, device: str) -> list[Part]:
    """The parts of a run under a plan, on a kind of device."""
    sequences = sorted(table.name for table in plan.workload.tables if not table.pooled)
    named = sorted(((table.data_type, table.name) for table in plan.workload.tables), reverse=True)
    narrow = {kind: name for kind, name in named if kind != "fp32"}  # the first of each
    towers = towers_of(run.model)
    stored = sorted(each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name)
    return [
        *device_parts(run, device), Messages(run.comms),
        *(Sequences(name, run.model.name) for name in sequences[:1]), PlannedTables(plan, device),
        *(NarrowTables(name, kind) for kind, name in narrow.items()), *row_parts(run),
        FP32_PRODUCTS if run.model.precision == "fp32" else BF16_PRODUCTS,
        *_trained_by(run),
        *([OnDisk(next(iter(stored), None), run.rows)] if stored or parsed(run.rows, "rows")[0] == "tiered" else []),
        *([TowersOfHosts(towers=towers)] if towers else []),
        *([BACKGROUND] if run.checkpoint is not None and run.checkpoint.background else []),
        *([TablesOnServers()] if run.remote is not None else []),
    ]  # fmt: skip


PIPELINES = ("auto", "base", "sparse_dist", "prefetch_sparse_dist")


def array_parts(run: Run) -> list[Part]:
    """The parts of a run that trains several models in one job."""
    step = parsed(run.pipeline, "pipeline")[0]
    tables = model_parts(run.model, tables=run.model.tables, weighted=False, deduplicated=False)
    return [
        TrainedTogether(), *(each for each in data_parts(run) if each is not COMPRESSION), *tables, *_trained_by(run),
        *([OwnStep(step)] if step not in (*PIPELINES, *SECOND_ORDER) else []),
        *([FewerUnits()] if run.model.narrow is not None else []),
        *([FactoredLayers()] if run.optimizers.dense.name == AUTO else []),
        *([BF16_PRODUCTS] if run.model.precision == "bf16" else []),
        *([BACKGROUND] if run.checkpoint is not None and run.checkpoint.background else []),
    ]  # fmt: skip


def remote_parts(run: Run, device: str = "cpu") -> list[Part]:
    """The parts of a run whose tables are on servers, on a kind of device; none of another one."""
    if run.remote is None:
        return []
    step = parsed(run.pipeline, "pipeline")[0]
    tables = model_parts(run.model, tables=run.model.tables, weighted=False, deduplicated=False)
    narrow = sorted((each.data_type, each.name) for each in run.model.tables if each.data_type != "fp32")
    return [
        TablesOnServers(), *data_parts(run), *tables, *_trained_by(run), TableOptimizer(run.optimizers.sparse.name),
        *(NarrowTables(name, kind) for kind, name in narrow[:1]),
        *([OwnStep(step)] if step not in ("auto", "base", *SECOND_ORDER) else []),
        *([BF16_PRODUCTS] if run.model.precision == "bf16" else []),
        *([GPU] if "cuda" in (run.device, device) else []),
        *([BACKGROUND] if run.checkpoint is not None and run.checkpoint.background else []),
    ]  # fmt: skip


def remote_refusal(run: Run, staleness: int) -> str | None:
    """Why a run cannot have its tables on servers with a staleness; None where it can."""
    served = replace(run, remote=replace(run.remote or RunRemote(), staleness=staleness))
    try:
        check_remote(served, launched=False)
        check_together(remote_parts(served))
    except (UsageError, MissingExtra) as error:
        return str(error)
    return None


def layer_parts(run: Run, shapes: Sequence[Sequence[int]]) -> list[Part]:
    """The parts of a run's dense layers. shapes: of their parameters."""
    return [*_trained_by(run), *([NO_LAYERS] if all(len(shape) < 2 for shape in shapes) else [])]


def _trained_by(run: Run) -> list[Part]:
    """What trains dense layers, where it is not an optimizer like any other, and what that looks at."""
    dense, step = run.optimizers.dense, parsed(run.pipeline, "pipeline")[0]
    named = dense.name, (dense.arguments or {}).get("optimizer")
    narrow = run.model.narrow not in (None, "auto")
    plain = narrow and SHAMPOO not in named and dense.name not in (*IN_HALVES, AUTO) and step not in SECOND_ORDER
    decay = (dense.arguments or {}).get("weight_decay", ADAMW_DECAY if dense.name.lower() == "adamw" else 0.0)
    return [
        *([FewerUnits()] if narrow else []),
        *([LayerOptimizer(dense.name.lower(), float(decay))] if plain else []),
        *([FactoredLayers()] if SHAMPOO in named else []),
        *([NarrowLayers(dense.name)] if dense.name in IN_HALVES else []),
        *([LayersByStep(step)] if step in SECOND_ORDER else []),
        *([UnusedSettings(unused)] if step in SECOND_ORDER and (unused := _unused(run)) else []),
    ]


def _unused(run: Run) -> tuple[str, ...]:
    """Settings of optimizers that a run gives, and a pipeline that trains layers by itself does not use.

    Where tables rest, too, that is any of them.
    """
    given, plain = run.optimizers, RunOptimizers()
    dense = [
        f"optimizers.dense.{each.name}"
        for each in fields(DenseOptimizer)
        if each.name != "name" and getattr(given.dense, each.name) != getattr(plain.dense, each.name)
    ]
    if given.dense.name not in (plain.dense.name, SHAMPOO, *IN_HALVES):  # which are refused for reasons of their own
        dense.insert(0, "optimizers.dense.name")
    if not tables_rest(run.pipeline):
        return tuple(dense)
    sparse = [
        f"optimizers.sparse.{each.name}"
        for each in fields(SparseOptimizer)
        if getattr(given.sparse, each.name) != getattr(plain.sparse, each.name)
    ]
    schedule = [
        f"optimizers.{name}"
        for name in ("warmup_steps", "decay_start", "decay_steps")
        if getattr(given, name) != getattr(plain, name)
    ]
    return (*dense, *sparse, *schedule)


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


def pairs_table(parts: Sequence[Part]) -> str:
    """Pairs of these parts that do not go together, as a table in Markdown."""
    lines = ["| part | does not go with | because |", "|---|---|---|"]
    for part, other in permutations(parts, 2):
        sentence = part.refuses(other)
        if sentence is not None:
            lines.append(f"| {part.label} | {other.label} | {sentence} |")
    return "\n".join(lines)
