"""Writes a delta of the model for each period of a stream, with which serving copies follow training (docs/daily.md).

    OUTPUT/deltas/first            the whole model to which the first delta applies
    OUTPUT/deltas/period-00003     what training on periods 0 to 2 changed since the previous delta
    OUTPUT/deltas/last             what training changed after that, up to the model of the run
    OUTPUT/deltas/newest           the whole model after the newest delta, with which the next model is compared

Each delta is made from the whole model that results from the previous one, so the chain is complete even if a job was
ended between the two.
"""

import shutil
from pathlib import Path

import torch.distributed as dist

from recsmith.errors import UsageError, check_rules, outside
from recsmith.files import encode
from recsmith.training.job.card import CARD, MODEL
from recsmith.training.job.finishing import export_model
from recsmith.training.job.job import TrainingJob
from recsmith.training.results.deltas import make_delta
from recsmith.training.run import Run
from recsmith.training.watchers.protocol import Seen, SeenPeriod, Watcher, Wish
from recsmith.units import counted

FOLDER = "deltas"  # folder in a run's output
FIRST, NEWEST, NEXT, LAST = "first", "newest", "next", "last"
NAME = "period-{period:05d}"


class PeriodDeltas(Watcher):
    """Writes what each period of a stream changed in the model as a delta, into the folder `deltas` of the run.

    periods: number of periods that a delta covers.
    """

    def __init__(self, *, periods: int = 1) -> None:
        self.check_settings(periods=periods)
        self.periods = periods
        self._output: Path | None = None

    @classmethod
    def check_settings(cls, *, periods: int = 1) -> None:
        """Raise UsageError if the number of periods is below 1."""
        check_rules(outside("period_deltas: periods", periods, 1))

    @classmethod
    def check_run(cls, run: Run) -> None:
        """Raise UsageError if the run has no periods, or never scores the next one."""
        if run.data.periods is None:
            raise UsageError(
                "watcher period_deltas makes a delta of each period of a stream, and the run has no data.periods; give "
                "it some, or make deltas between runs by `recsmith delta make`"
            )
        ahead = run.data.periods.score_ahead
        check_rules(
            None if 1 in ahead
            else "watcher period_deltas makes a delta when the next period is scored, and data.periods.score_ahead is "
            f"{list(ahead)}; add 1 to it"
        )  # fmt: skip

    def look(self, seen: Seen) -> Wish | None:
        """Do nothing: deltas are made between periods."""
        return None

    def look_at_period(self, seen: SeenPeriod) -> Wish | None:
        """Export the model trained on all earlier periods, on every rank, and write its delta on rank 0."""
        job: TrainingJob = seen.job
        folder = job.output / FOLDER
        self._output = job.output
        delta = folder / NAME.format(period=seen.period)
        if seen.ahead != 1 or seen.period % self.periods or delta.exists():
            return None
        export_model(job, folder / NEXT, encode(seen.scores))
        if dist.get_rank() == 0:
            if (folder / NEWEST / CARD).exists():
                made = make_delta(folder / NEWEST, folder / NEXT, delta, force=True)
                job.log.say({"note": f"'{delta}' has {counted(made.changed_rows, 'row')} that training changed"})
                shutil.rmtree(folder / NEWEST)
            else:
                shutil.copytree(folder / NEXT, folder / FIRST, dirs_exist_ok=True)
            (folder / NEXT).rename(folder / NEWEST)
        dist.barrier()
        return None

    def close(self, error: BaseException | None) -> None:
        """Write the last delta, if training is complete."""
        if error is not None or self._output is None or dist.get_rank() or not (self._output / MODEL / CARD).exists():
            return
        folder = self._output / FOLDER
        make_delta(folder / NEWEST, self._output / MODEL, folder / LAST, force=True)
