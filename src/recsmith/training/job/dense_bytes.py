"""What a run's dense layers take of each rank, by when it is alive: for `recsmith explain --memory --run`."""

from recsmith.adapters.installed import require_torchrec
from recsmith.files import Source
from recsmith.plans import load_plan
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.training.job.models import unsharded
from recsmith.training.job.run_step import dense_bytes
from recsmith.training.job.sharded import dense_shapes
from recsmith.training.optimizers.building import state_bytes
from recsmith.training.run import Run, load_run


def dense_bytes_of_run(run: Run | Source, plan: Source) -> DenseBytes:
    """Of the run's own model, at the batch of a plan; nothing is trained, and tables get no memory.

    Raises:
        UsageError: the run or the plan cannot be read.
    """
    require_torchrec()
    made, placed = load_run(run), load_plan(plan)
    shapes = dense_shapes(unsharded(made).task)
    return dense_bytes(made, placed, shapes, state_bytes(made.optimizers.dense), None)
