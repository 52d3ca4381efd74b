"""A run that goes on from a checkpoint of its folder: from which, and whether it can.

A start asks, and a dry run asks the same.
"""

from pathlib import Path

from recsmith.plans import Plan
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan_rules import check_loadable
from recsmith.training.job.resuming import CHECKPOINTS, Saved, newest_in
from recsmith.training.optimizers.building import state_bytes
from recsmith.training.run import Run
from recsmith.training.seams.registry import systems, trains_layers
from recsmith.training.sources import check_state
from recsmith.workloads.optimizers import OPTIMIZERS


def newest_of(run: Run) -> Saved | None:
    """The newest complete checkpoint in a run's folder, from which it goes on; None where it begins anew."""
    return newest_in(Path(run.output) / CHECKPOINTS) if run.checkpoint else None


def check_goes_on(parts: Unsharded, saved: Saved, plan: Plan, ranks: int) -> None:
    """Refuse plan, data or their order, and what systems refuse, unlike those of the checkpoint to go on from."""
    run, progress = parts.run, saved.progress
    for system in systems():
        system.check_goes_on(saved.run, run)
    check_loadable(saved.plan, plan)
    size, _ = run.data.batch_sizes(ranks).at(progress["step"])
    check_state(parts.source, progress["position"], ranks, size)


def check_job(run: Run, saved: Saved, parts: Unsharded) -> None:
    """Refuse another model or another optimizer than the checkpoint's (CorruptFile). run: decided.

    What only shards can tell, `Saved.load` refuses.
    """
    sparse = any(OPTIMIZERS[name].fused_states for name in run.optimizers.sparse.names)
    kept = {"dense": state_bytes(run.optimizers.dense), "sparse": sparse}
    stateful = [] if trains_layers(run) else [group for group, some in kept.items() if some]
    saved.check_job(run, parts.task.state_dict(), stateful)
