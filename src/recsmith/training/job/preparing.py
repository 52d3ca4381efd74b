"""What a run is once nothing is left to `auto`, and what can be refused has been: the same for a start and a dry run.

Systems decide in one order (seams/system.py), for each rests on those before. The step that they decide by is that of
run_step.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsmith.adapters.topology import device_type
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan import with_collections
from recsmith.training.job.run_step import plain_step, planned_as_run
from recsmith.training.job.sharded import dense_shapes, numbers_across
from recsmith.training.run import Run
from recsmith.training.run.refusals import check_together, layer_parts, placed_parts
from recsmith.training.seams import systems
from recsmith.training.seams.system import OpenRun, SystemTold


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
    asked = priced or any(system.needs_step(run) for system in systems())
    own = planned_as_run(run, plan, parts.features.repeats) if asked else plan
    step = plain_step(run, own, shapes, numbers) if asked else None
    made = OpenRun(run, parts, plan, own, shapes, numbers, comms=run.comms, step=step, before=before)
    for system in systems():
        made = system.decide(made)
    return DecidedRun(made.run, made.comms, plan, own, shapes, made.step, made.told)
