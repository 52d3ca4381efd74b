"""A rank's training: a run is prepared and trained, and prepared once more where a watcher asks for that.

Every rank of a job runs `train_on_rank`. How a job begins is in job/starting.py, the loop that trains it in loop.py.
"""

import gc
from pathlib import Path

from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.job.agreement import Agreement, Ending, Wish, heeding_sigterm
from recsmith.training.job.finishing import finish
from recsmith.training.job.log import tell_note, tell_pid
from recsmith.training.job.starting import owning, plan_anew, prepared
from recsmith.training.loop import TrainedModels, train_prepared
from recsmith.training.run import Run, run_of_job, run_to_raw
from recsmith.training.seams.system import first_of, systems
from recsmith.training.watchers import Watchers


def train_on_rank(run: Raw) -> Raw:
    """Train a run on this rank of a job, from its newest checkpoint if it has one; what came of it (JSON data)."""
    with heeding_sigterm() as ending:
        tell_pid()
        made, agreement = run_of_job(run), Agreement()
        asked = (each.train(made, agreement, ending, train_on_rank, train_prepared) for each in systems())
        if (trained := first_of(asked)) is not None:
            return trained
        with owning(Path(made.output)), Watchers(made.watched) as watchers:
            for system in systems():
                made = system.decided_run(made, lambda each: train_on_rank(run_to_raw(each)), tell_note)
            result = _trained(made, agreement, watchers, ending)
            while isinstance(result, Wish):
                gc.collect()  # weights of the job before go, before there are new ones
                result = _trained(made, agreement, watchers, ending, result)
            return result


def _trained(
    run: Run, agreement: Agreement, watchers: Watchers, ending: Ending, after: Wish | None = None
) -> Raw | Wish:
    """Prepare a job and train it: what came of it, or the wish after which it must be prepared anew.

    after: such a wish, with the plan to go on under.
    """
    job, batches = prepared(run, agreement, plan=after and after.plan)
    return train_prepared(OneModel(job), batches, watchers, ending, after)


class OneModel(TrainedModels):
    """The model of a job that trains one."""

    def plan_anew(self, wish: Wish) -> tuple[Plan | None, str]:
        """Another plan to go on under; None where none is better, and why."""
        return plan_anew(self.job, wish)

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end; what came of it."""
        return finish(self.job, ended=ended)
