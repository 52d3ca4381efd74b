"""The memory of each rank in a run, by when it is used: for `recsmith explain --memory --run`."""

import math
from dataclasses import replace

from recsmith.adapters.installed import require_torchrec
from recsmith.analyses.step_memory import StepMemory, step_memory
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.plans import Plan, load_plan
from recsmith.prediction.dense_choices import DenseLayers
from recsmith.prediction.dense_shapes import NUMBER_BYTES, Shapes, numbers_of
from recsmith.prediction.speeds import flops_per_s
from recsmith.training.job.models import unsharded
from recsmith.training.job.run_step import dense_bytes, history_work
from recsmith.training.job.sharded import dense_shapes, with_collections
from recsmith.training.optimizers.building import dense_state
from recsmith.training.run import Run, load_run
from recsmith.training.seams.registry import first_of, systems


def memory_of_run(run: Run | Source, plan: Plan | Source) -> tuple[StepMemory, DenseLayers]:
    """(memory by when it is used, what could be less) for the run's own model and rows, at the batch size of a plan.

    Nothing is trained, and tables get no memory. For a model of histories, outputs of single layers are not given. What
    systems hold in addition to tables and layers counts as always used.

    Raises:
        UsageError: the run or the plan cannot be read, or the run trains several models.
        PlanMismatch: the plan is for other tables than the run's.
    """
    require_torchrec()
    made = load_run(run)
    _check_one_model(made)
    placed = load_plan(plan)
    task = unsharded(made).task
    with_collections(placed, replace(made, plan="of a file"), task)
    return _memory(made, placed, dense_shapes(task))


def _memory(made: Run, placed: Plan, shapes: Shapes) -> tuple[StepMemory, DenseLayers]:
    state = dense_state(made, shapes, placed.cluster.job_world_size)
    own = 0 if state.divided else state.ranks[0]
    dense = dense_bytes(made, placed, shapes, own + sum(each.more_bytes(made, placed) for each in systems()), None)
    if state.divided:
        dense = replace(dense, apart=state.ranks[: placed.cluster.world_size])
    kept = placed
    for system in systems():
        kept = system.kept_plan(made, kept)
    source = f"the run's own layers; {state.note}" if state.note else "the run's own layers"
    memory = step_memory(kept, dense, source)
    numbers, batch = numbers_of(shapes), placed.workload.batch_size
    layers = DenseLayers(weights=numbers * NUMBER_BYTES, gradients=dense.gradients, state=own)
    if history_work(made, placed) is not None:
        return memory, layers
    matrices = [shape for shape in shapes if len(shape) > 1]
    speed = flops_per_s(placed.cluster.device.kind)
    return memory, replace(
        layers, outputs=tuple(NUMBER_BYTES * batch * shape[0] for shape in matrices),
        forward_s=tuple(2 * batch * math.prod(shape) / speed for shape in matrices),
    )  # fmt: skip


def _check_one_model(run: Run) -> None:
    """UsageError if a run trains several models, each of which has a plan and a run of its own."""
    several = first_of(system.trained_runs(run) for system in systems())
    if several:
        folder = several[0].output
        raise UsageError(
            f"the run trains {len(several)} models, and --memory tells of one; give the plan and the run of one that "
            f"was started, such as {folder}/plan.json --memory --run {folder}/run.json"
        )
