"""Which checkpoint in its folder a run continues from, and whether it can.

Both a start and a dry run use this.
"""

from pathlib import Path

from recsmith.errors import UsageError
from recsmith.jobs.log_lines import LOG, logged
from recsmith.plans import Plan
from recsmith.training.job.agreement import FAILURES
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan_rules import check_loadable
from recsmith.training.job.resuming import CHECKPOINTS, Saved, newest_in
from recsmith.training.optimizers.building import state_bytes
from recsmith.training.run import Run
from recsmith.training.seams.registry import systems, trains_layers
from recsmith.training.sources import check_state
from recsmith.workloads.optimizers import OPTIMIZERS


def newest_of(run: Run) -> Saved | None:
    """The newest complete checkpoint in a run's folder, from which it continues; None if it starts anew."""
    return newest_in(Path(run.output) / CHECKPOINTS) if run.checkpoint else None


def after_failure(run: Run, saved: Saved) -> list[str]:
    """A line about the watcher that ended the previous job with an error, unless the checkpoint is later than that.

    Raises:
        UsageError: the watcher saw everything that was trained, so the model would be made of just that.
    """
    file, step = Path(run.output) / LOG, saved.progress["step"]
    last = next(reversed(logged(file, "watcher")), {}) if file.exists() else {}
    if last.get("what") not in FAILURES or last["step"] < step:
        return []
    text = f"a watcher ended the job before after step {last['step']:,} ({last['what']}): {last['because']}"
    cure = f"once the data is mended, train it with an empty output: remove '{run.output}', or give another one"
    if last["step"] == step and run.watched == saved.run.watched:
        raise UsageError(f"{text}; no model is made of that; {cure}")
    return [f"{text}; what is saved has learned from the data before that step; {cure}"]


def check_goes_on(parts: Unsharded, saved: Saved, plan: Plan, ranks: int) -> None:
    """Refuse a plan, data or order that differs from the checkpoint's, and what systems refuse."""
    run, progress = parts.run, saved.progress
    after_failure(run, saved)
    for system in systems():
        system.check_goes_on(saved.run, run)
    check_loadable(saved.plan, plan)
    size, _ = run.data.batch_sizes(ranks).at(progress["step"])
    check_state(parts.source, progress["position"], ranks, size)


def check_job(run: Run, saved: Saved, parts: Unsharded) -> None:
    """Refuse another model or another optimizer than the checkpoint's (CorruptFile). run: the decided run.

    `Saved.load` checks what is known only once the model is sharded.
    """
    sparse = any(OPTIMIZERS[name].fused_states for name in run.optimizers.sparse.names)
    kept = {"dense": state_bytes(run.optimizers.dense), "sparse": sparse}
    stateful = [] if trains_layers(run) else [group for group, some in kept.items() if some]
    saved.check_job(run, parts.task.state_dict(), stateful)
