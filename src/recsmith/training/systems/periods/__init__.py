"""A stream in periods: the current model scores each new period, and is then trained on it (docs/online.md).

Without torch: settings.py holds the settings, updates/ the ways to learn a new period.
source.py reads one period at a time, stretches.py scores between them, deciding.py replays the first periods to decide
which update pays (arms.py), replay.py is `recsmith bench online`, and deltas.py writes what each period changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith._components import parsed, register
from recsmith.files import Raw
from recsmith.training.seams.capabilities import BAGS, FORMATS, ORDER, STEP, Capabilities, PlainPart, RefusesNothing
from recsmith.training.seams.in_jobs import Attached
from recsmith.training.seams.predicting import RunFacts, SystemLine
from recsmith.training.seams.system import UPDATE, WATCHER, System
from recsmith.training.systems.periods.settings import Periods
from recsmith.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from recsmith.data import Dataset
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource

register(UPDATE, "incremental", "recsmith.training.systems.periods.updates.passes:Incremental")
register(UPDATE, "window", "recsmith.training.systems.periods.updates.passes:WindowUpdate")
register(UPDATE, "auto", "recsmith.training.systems.periods.updates.auto:AutoUpdate")
register(UPDATE, "future_gradient", "recsmith.training.systems.periods.updates.future_gradient:FutureGradient")
register(WATCHER, "period_deltas", "recsmith.training.systems.periods.deltas:PeriodDeltas")


IN_PERIODS = PlainPart("data.periods", Capabilities({ORDER}), Capabilities({FORMATS}))


@dataclass(frozen=True)
class MixedPeriods(RefusesNothing):
    """Steps that take a batch of each of several periods, and weight their losses sample by sample."""

    needs: ClassVar[Capabilities] = Capabilities({BAGS, STEP})
    cures: ClassVar[Mapping[str, str]] = {STEP: "write incremental or window, or pipeline: base"}
    update: str

    @property
    def label(self) -> str:
        """The key, and the name of the update."""
        return f"data.periods.update: {self.update}"


class InOrder(System):
    """The system that reads samples period after period."""

    key = "data.periods"
    settings = Periods
    about = (
        "train is a stream, of which each period is scored by the model before it, and then trained on "
        "(docs/online.md); none: its samples are shuffled together"
    )
    components: ClassVar[Mapping[str, tuple[str, int]]] = {"data.periods.update": (UPDATE, 0)}
    kept, state = "update", dict[str, Any]

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The periods as a part of the run, and an update that mixes periods in a step."""
        periods = run.data.periods
        if periods is None:
            return ()
        mixes = [MixedPeriods(_update(periods))] if periods.mixed > 1 else []
        return (IN_PERIODS, *mixes)

    def wrong(self, run: "Run") -> Sequence[str | None]:
        """An error if the run has several epochs, which a stream cannot have."""
        if run.data.periods is None or run.data.epochs == 1:
            return ()
        return (
            f"data.epochs is {run.data.epochs}, and with data.periods each period is trained when it comes; leave "
            "epochs out, or write data.periods.update: window",
        )

    def batches_of_a_step(self, run: "Run") -> int:
        """The number of batches, each of another period, that a step takes together."""
        return 1 if run.data.periods is None else run.data.periods.mixed

    def source(self, run: "Run", dataset: "Dataset") -> "BatchSource | None":
        """The dataset as a stream in periods; None if the run has none."""
        from recsmith.training.systems.periods.source import in_periods

        return None if run.data.periods is None else in_periods(dataset, run)

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """A line on how a period is learned."""
        periods = run.data.periods
        if periods is None:
            return ()
        batches = f"; a step takes {periods.mixed} batches" if periods.mixed > 1 else ""
        said = f"periods: each is scored by the model before it, then trained on ({_update(periods)}){batches}"
        return (SystemLine(key=self.key, on=True, said=said),)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """The mean log loss of periods before the model was trained on them."""
        if job.run.data.periods is None or job.log.rank:
            return {}
        from recsmith.jobs.log_lines import LOG, logged, logged_number

        file = job.output / LOG
        losses = [logged_number(file, line, "logloss") for line in logged(file, "period") if line.get("ahead") == 1]
        if not losses:
            return {}
        scored = f"periods: {counted(len(losses), 'period')} scored before training on them"
        return {self.key: f"{scored}: log loss {fmean(losses):.4f} in the mean"}

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """The run's update, which is kept in checkpoints; None without periods."""
        return None if run.data.periods is None else LearnedUpdate(run.data.periods.update)

    def decided_run(self, run: "Run", train: "Callable[[Run], Raw]", say: "Callable[[str], None]") -> "Run":
        """The run, in which `update: auto` is replaced by an update that pays."""
        from recsmith.training.systems.periods.deciding import decided_update

        return decided_update(run, train, say)

    def stretches(self, job: "TrainingJob", batches: Any, watchers: Any) -> Any:
        """The batches period by period, with scoring in between; None without periods."""
        from recsmith.training.systems.periods.stretches import stretches

        return None if job.run.data.periods is None else stretches(job, batches, watchers)


class LearnedUpdate(Attached):
    """The update by which a job learns new periods. update: as a run names it."""

    def __init__(self, update: Any) -> None:
        from recsmith.training.systems.periods.updates import update_of

        self.update = update_of(update)

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Restore the update's state from a checkpoint, if there is one."""
        if kept is not None:
            self.update.from_raw(kept)

    def to_raw(self) -> Raw | None:
        """The update's state for a checkpoint."""
        return self.update.to_raw()


def _update(periods: Periods) -> str:
    return parsed(periods.update, "data.periods.update")[0]


SYSTEM = InOrder()
