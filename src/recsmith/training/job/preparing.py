"""The one preparation of a run: dry runs report its result, and jobs, arrays, servers and trainers train it.

The order matters: the model is built for the data, the plan is made for the model, a checkpoint is compared with both,
systems decide what is open (in the order of listed.py, because each builds on the decisions before it), and the rest is
compared with the checkpoint. Systems decide by the predicted step of run_step.py.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsmith._types import Ints
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.adapters.topology import device_type
from recsmith.data.same_data import check_same_data
from recsmith.errors import RecSmithError, UsageError
from recsmith.plans import Plan
from recsmith.prediction.dense_shapes import Shapes
from recsmith.prediction.job_step import JobStep
from recsmith.scoring.ranking import grouping
from recsmith.training.job.going_on import after_failure, check_goes_on, check_job
from recsmith.training.job.log import starting_lines
from recsmith.training.job.losses import ONE_CANDIDATE
from recsmith.training.job.models import Unsharded, unsharded
from recsmith.training.job.plan import plan_to_go_on
from recsmith.training.job.resuming import Saved
from recsmith.training.job.run_step import plain_step, planned_as_run
from recsmith.training.job.sharded import dense_shapes, numbers_across, with_collections
from recsmith.training.models import sequence_settings
from recsmith.training.run import Run
from recsmith.training.run.parts import SAMPLE_WEIGHTS
from recsmith.training.run.refusals import check_together, layer_parts, placed_parts
from recsmith.training.seams.predicting import OpenRun, SystemLine
from recsmith.training.seams.registry import first_of, systems, told_step
from recsmith.training.sources import first_lengths, open_data, reading_of, with_distinct
from recsmith.training.sources.protocol import State

SEEN = 64  # samples that are checked before a run starts
PlanMaker = Callable[[Unsharded, Plan | None, int], Plan]  # (tables, checkpoint's plan, ranks with tables)


@dataclass(frozen=True)
class PreparedRun:
    """A run in which everything is decided, after all checks that can be made before it is sharded.

    run: the run with what systems decided; its comms are as they were written. comms: encoding of messages between
    ranks. ranks: number of training ranks. parts: its data and its model, whose tables have no memory yet. parameters:
    number of weights of the model, including its tables. saved: the checkpoint that training continues from. plan: of
    the tables. priced: the plan with the run's batch and optimizer, which is priced. shapes: of dense parameters. step:
    the predicted step of the run as decided; None if it is not predicted, or was not asked for. lines: what was
    decided, and why. lengths: lengths of the histories of the first step, if the model reads histories and the step was
    predicted.
    """

    run: Run
    comms: Any
    ranks: int
    parts: Unsharded
    parameters: int
    saved: Saved | None
    plan: Plan
    priced: Plan
    shapes: Sequence[Sequence[int]]
    step: JobStep | None
    lines: tuple[SystemLine, ...]
    lengths: Ints | None = None

    @property
    def about(self) -> list[str]:
        """Lines about model, data and plan."""
        samples = self.parts.source.length
        return starting_lines(self.run, self.plan, parameters=self.parameters, samples=samples, ranks=self.ranks)

    def notes(self, position: State | None) -> list[str]:
        """Lines about the data from a position on, and about the checkpoint that training continues from."""
        sizes = self.run.data.batch_sizes(self.ranks)
        return [
            *self.parts.source.notes(sizes, self.ranks, position),
            *(self.saved.lines(self.run, self.ranks) if self.saved else []),
            *(after_failure(self.run, self.saved) if self.saved else []),
            *(line for each in systems() for line in each.steps_notes(self.run, self.parts.source, self.ranks)),
        ]


def prepare(
    run: Run, ranks: int, *, saved: Saved | None = None, parts: Unsharded | None = None,
    plan_by: PlanMaker = plan_to_go_on, together: bool = False, priced: bool = False,
) -> PreparedRun:  # fmt: skip
    """Prepare a run for `ranks` training ranks.

    Args:
        run: the run as written.
        ranks: number of training ranks.
        saved: the checkpoint to continue from; choices that are `auto` are kept as it has them.
        parts: data and model, if they are built already, of the run `as_saved`.
        plan_by: makes or reads the plan of the ranks that hold the tables; by default as if all were on this machine.
        together: whether all ranks of a job prepare it, so that rank 0 does the checks that are the same on all.
        priced: predict the step, even if no decision needs it.

    Raises:
        UsageError: parts of the run cannot be combined, something that it names does not exist, or it cannot continue
            from `saved`.
        CorruptFile: the checkpoint is of another model, of other data or damaged.
        PlanMismatch: the plan is for other tables.
        Infeasible, NoPlanFound: the tables do not fit.
    """

    def check(of_all: Callable[[], None]) -> None:
        from_rank_0(lambda: of_all() or {}) if together else of_all()

    parts = parts or unsharded(as_saved(run, saved))
    held, holders = first_of(system.run_of_plan(parts.run, ranks) for system in systems()) or (parts.run, ranks)
    check(lambda: check_data(parts))
    plan = plan_by(replace(parts, run=held), saved.plan if saved else None, holders)
    if saved is not None:
        check_goes_on(parts, saved, plan, ranks)
    made = _decided(parts, plan, saved.run if saved else None, ranks, priced=priced)
    if saved is not None:
        check(lambda: check_job(made.run, saved, parts))
    return PreparedRun(
        made.run, made.comms, ranks, parts, parts.parameters, saved, plan, made.priced, made.shapes, made.step,
        (*parts.lines, *made.lines), made.lengths,
    )  # fmt: skip


def as_saved(run: Run, saved: Saved | None) -> Run:
    """The run with `auto` choices about its model set as in the checkpoint to continue from."""
    if saved is None:
        return run
    for system in systems():
        run = system.as_before(saved.run, run)
    return run


def _decided(parts: Unsharded, plan: Plan, before: Run | None, ranks: int, *, priced: bool) -> OpenRun:
    """Let systems decide what a run leaves open, under a plan of its tables."""
    run, task, plan = parts.run, parts.task, with_collections(plan, parts.run, parts.task)
    shapes, numbers = dense_shapes(task), numbers_across(task, plan)
    weighed = [SAMPLE_WEIGHTS] if parts.source.schema.weight is not None else []
    check_together([*weighed, *placed_parts(run, plan, device_type()), *layer_parts(run, shapes)])
    asked = priced or any(system.needs_step(run) for system in systems())
    own, lengths, step = _plain(run, parts, plan, shapes, numbers) if asked else (plan, None, None)
    made = OpenRun(
        run, parts, plan, own, shapes, numbers, comms=run.comms, step=step, before=before, lengths=lengths, ranks=ranks,
        told_step=told_step,
    )  # fmt: skip
    for system in systems():
        made = system.decide(made)
    return made


def _plain(
    run: Run, parts: Unsharded, plan: Plan, shapes: Shapes, numbers: int
) -> tuple[Plan, Ints | None, JobStep | None]:
    """(the plan by which the run is priced, lengths of the first histories, the step) before systems change it."""
    own = planned_as_run(run, plan, parts.features.repeats)
    lengths = history_lengths(parts, own.cluster.job_world_size)
    reading = reading_of(with_distinct(parts.source, parts.features.groups))
    return own, lengths, plain_step(run, own, shapes, numbers, lengths, reading=reading)


def predicted_step(made: PreparedRun) -> JobStep | None:
    """The step as a dry run reports it, for a model that is not sharded yet.

    None on GPUs, and if the plan's cost model cannot price the run.
    """
    own, step = made.priced, made.step
    if step is None:
        run, plan = replace(made.run, comms=made.comms), with_collections(made.plan, made.run, made.parts.task)
        try:
            with warnings.catch_warnings(action="ignore"):  # planning has already warned about the cost model's limits
                own, _, step = _plain(run, made.parts, plan, made.shapes, numbers_across(made.parts.task, plan))
        except RecSmithError:
            return None
    return told_step(made.run, own, made.ranks, step)


def check_data(parts: Unsharded) -> None:
    """Refuse data that the run cannot train on or score, before anything is trained.

    Raises:
        UsageError: test data are missing, differ in meaning from the training data, or have no groups to rank in; or
            the
            loss is softmax, and a sample has no candidate besides its target.
    """
    run, settings = parts.run, sequence_settings(parts.run.model.name, parts.run.model.arguments)
    target = settings.target[0] if settings is not None and run.model.loss == "softmax" else None
    if target is not None and first_lengths(parts.source, target, 1, SEEN).max() < 2:
        raise UsageError(ONE_CANDIDATE)
    if run.data.test is not None:
        dataset = open_data(run.data.test, "data.test")
        check_same_data(parts.source.schema, dataset.schema, "data.test")
        grouping(run.metrics.group, run.metrics.at, dataset)


def history_lengths(parts: Unsharded, ranks: int) -> Ints | None:
    """Lengths of the histories in the first step of `ranks` ranks; None if the model reads no histories."""
    settings = sequence_settings(parts.run.model.name, parts.run.model.arguments)
    if settings is None:
        return None
    return first_lengths(parts.source, settings.history[0], ranks, parts.run.data.local_batch_size(ranks))
