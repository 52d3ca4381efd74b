"""What a run is once nothing is left to `auto`, and what can be refused has been: the same for a start and a dry run.

Decisions follow one order, for each rests on those before: what crosses ranks, the optimizer of dense layers, narrow
layers. The step that they are priced by is that of run_step.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsmith.adapters.topology import device_type
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.training.collectives import collectives_of, decided
from recsmith.training.models import Unsharded
from recsmith.training.narrowing.deciding import with_narrow
from recsmith.training.optimizers.shampoo_cost import AUTO, SHAMPOO
from recsmith.training.plan import with_collections
from recsmith.training.refusals import check_together, layer_parts, placed_parts
from recsmith.training.run import Run
from recsmith.training.run_step import plain_step, planned_as_run
from recsmith.training.sharded import dense_shapes, numbers_across, with_optimizer
from recsmith.training.told import COMMS, DENSE, NARROW, SystemTold


@dataclass(frozen=True)
class DecidedRun:
    """A run with nothing left to decide.

    run: with its optimizer and its narrow layers; its comms are as they were written. comms: what crosses ranks. plan:
    as it was given. priced: the plan with the run's batch and optimizer, by which it is priced. shapes: of dense
    parameters. step: predicted, of the run as it is; None where it is not, or was not asked for. told: what was
    decided, and why.
    """

    run: Run
    comms: Any
    plan: Plan
    priced: Plan
    shapes: Sequence[Sequence[int]]
    step: JobStep | None
    told: tuple[SystemTold, ...]


def decided_run(parts: Unsharded, plan: Plan, before: Run | None = None, *, priced: bool = False) -> DecidedRun:
    """Decide what a run leaves open, under a plan of its tables.

    before: the run of the checkpoint that training goes on from, whose choices stay. priced: predict its step, whether
    a decision needs it or not.

    Raises:
        UsageError: parts of the run do not go together, or what it names cannot be had.
        PlanMismatch: the plan is of other tables.
    """
    run, task, plan = parts.run, parts.task, with_collections(plan, parts.run, parts.task)
    shapes, numbers = dense_shapes(task), numbers_across(task, plan)
    check_together([*placed_parts(run, plan, device_type()), *layer_parts(run, shapes)])
    comms, lines = decided(run.comms, plan, numbers)
    asked = priced or run.model.narrow is not None or run.optimizers.dense.name in (AUTO, SHAMPOO)
    own = planned_as_run(run, plan, parts.features.repeats) if asked else plan
    step = plain_step(replace(run, comms=comms), own, shapes, numbers) if asked else None
    run, costs, added = with_optimizer(run, own, task, step, before)
    if step is not None:
        step = replace(step, optimizer_s=step.optimizer_s + added)
    run, narrowed, saved = with_narrow(run, replace(parts, run=run), own, step, before)
    if step is not None:
        step = replace(step, layers_s=max(0.0, step.layers_s - saved * step.step_s))
    taken: Any = collectives_of(comms)
    told = (
        *_told(COMMS, getattr(taken, "dense", None) is not None, lines),
        *_told(DENSE, run.optimizers.dense.name == SHAMPOO, costs),
        *_told(NARROW, run.model.narrow is not None, narrowed),
    )
    return DecidedRun(run, comms, plan, own, shapes, step, told)


def _told(key: str, on: bool, lines: Sequence[str]) -> list[SystemTold]:
    return [SystemTold(key=key, on=on, said=line) for line in lines]
