"""One rank's training: a run is prepared and trained, and prepared again if a watcher asks for that.

Every rank of a job runs `train_on_rank`. How a job begins is in job/starting.py, the loop that trains it in loop.py.
"""

from pathlib import Path

from recsmith._process import keep_freed_memory, memory_limit, settle
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.job.agreement import Agreement, Ending, Wish, heeding_sigterm
from recsmith.training.job.finishing import finish
from recsmith.training.job.live import LiveState, can_stay_in_memory, live_state
from recsmith.training.job.log import tell_note, tell_pid
from recsmith.training.job.starting import owning, plan_anew, prepared
from recsmith.training.loop import TrainedModels, train_prepared
from recsmith.training.run import Run, run_of_job, run_to_raw
from recsmith.training.seams.registry import first_of, systems
from recsmith.training.watchers import Watchers


def train_on_rank(run: Raw) -> Raw:
    """Train a run on this rank, from its newest checkpoint if there is one; returns the run's result as JSON data."""
    with heeding_sigterm() as ending:
        tell_pid()
        made, agreement = run_of_job(run), Agreement()
        if has_memory_to_spare(made):
            keep_freed_memory()  # otherwise each step would return its tensors' pages and request them again
        asked = (each.train(made, agreement, ending, train_on_rank, train_prepared) for each in systems())
        if (trained := first_of(asked)) is not None:
            return trained
        with owning(Path(made.output)), Watchers(made.watched) as watchers:
            for system in systems():
                made = system.decided_run(made, lambda each: train_on_rank(run_to_raw(each)), tell_note)
            result, live = _trained(made, agreement, watchers, ending)
            while isinstance(result, Wish):
                settle()  # free the weights of the previous job before new ones are made
                result, live = _trained(made, agreement, watchers, ending, result, live)
            return result


def has_memory_to_spare(run: Run) -> bool:
    """Whether all rows of a run are in memory, and no memory limit applies."""
    return run.rows == "device" and memory_limit() is None


def _trained(
    run: Run, agreement: Agreement, watchers: Watchers, ending: Ending, after: Wish | None = None,
    live: LiveState | None = None,
) -> tuple[Raw | Wish, LiveState | None]:  # fmt: skip
    """Prepare a job and train it; returns its result, or the wish for which it must be prepared again.

    after: such a wish, with the plan to continue under. live: the state in memory to continue from; also returned.
    """
    job, batches = prepared(run, agreement, plan=after and after.plan, live=live)
    models = OneModel(job)
    result = train_prepared(models, batches, watchers, ending, after)
    if isinstance(result, Wish):
        job.sharded.rows.flush()  # threads that fetch rows keep the tables alive until they finish
        watchers.leave()
    return result, models.live


class OneModel(TrainedModels):
    """The model of a job that trains one model. live: its state in memory, once it continues under another plan."""

    live: LiveState | None = None

    def plan_anew(self, wish: Wish) -> tuple[Plan | None, str]:
        """(another plan to continue under, or None if no other plan is better; the reason)."""
        job = self.job
        in_memory = can_stay_in_memory(job)
        if not in_memory and job.run.checkpoint is not None and job.progress.saved != job.progress.step:
            self.save()
        plan, why = plan_anew(job, wish, in_memory=in_memory)
        if plan is not None and in_memory:
            self.live = live_state(job)
        return plan, why

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end; returns the result of the run."""
        return finish(self.job, ended=ended)
