"""A stream in periods, each scored by the model before it and then trained on (docs/online.md).

settings.py is what a run says, updates/ how a new period is learned; without torch.
source.py reads a period at a time, stretches.py scores between them, deciding.py replays first periods to see which
update pays (arms.py), replay.py is `recsmith bench online`, and deltas.py writes what each period changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith._components import parsed, register
from recsmith.files import Raw
from recsmith.training.seams.capabilities import BAGS, FORMATS, ORDER, STEP, Capabilities, PlainPart, RefusesNothing
from recsmith.training.seams.in_jobs import Attached
from recsmith.training.seams.predicting import RunFacts, SystemTold
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
    """Steps that take a batch of each of several periods, whose losses are weighted: sample by sample, by one loss."""

    needs: ClassVar[Capabilities] = Capabilities({BAGS, STEP})
    cures: ClassVar[Mapping[str, str]] = {STEP: "write incremental or window, or pipeline: base"}
    update: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"data.periods.update: {self.update}"


class InOrder(System):
    """Samples come period after period."""

    key = "data.periods"
    settings = Periods
    about = (
        "train is a stream, of which each period is scored by the model before it, and then trained on "
        "(docs/online.md); none: its samples are shuffled together"
    )
    components: ClassVar[Mapping[str, tuple[str, int]]] = {"data.periods.update": (UPDATE, 0)}
    kept, state = "update", dict[str, Any]

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The periods, and an update that mixes them."""
        periods = run.data.periods
        if periods is None:
            return ()
        mixes = [MixedPeriods(_update(periods))] if periods.mixed > 1 else []
        return (IN_PERIODS, *mixes)

    def wrong(self, run: "Run") -> Sequence[str | None]:
        """Epochs, which no stream has."""
        if run.data.periods is None or run.data.epochs == 1:
            return ()
        return (
            f"data.epochs is {run.data.epochs}, and with data.periods each period is trained when it comes; leave "
            "epochs out, or write data.periods.update: window",
        )

    def batches_of_a_step(self, run: "Run") -> int:
        """As many as the update mixes."""
        return 1 if run.data.periods is None else run.data.periods.mixed

    def source(self, run: "Run", dataset: "Dataset") -> "BatchSource | None":
        """The dataset as a stream."""
        from recsmith.training.systems.periods.source import in_periods

        return None if run.data.periods is None else in_periods(dataset, run)

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """How a period is learned."""
        periods = run.data.periods
        if periods is None:
            return ()
        batches = f"; a step takes {periods.mixed} batches" if periods.mixed > 1 else ""
        said = f"periods: each is scored by the model before it, then trained on ({_update(periods)}){batches}"
        return (SystemTold(key=self.key, on=True, said=said),)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """How well periods were scored by the model before them."""
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
        """How new periods are learned."""
        return None if run.data.periods is None else LearnedUpdate(run.data.periods.update)

    def decided_run(self, run: "Run", train: "Callable[[Run], Raw]", say: "Callable[[str], None]") -> "Run":
        """The run with an update that pays, where it says auto."""
        from recsmith.training.systems.periods.deciding import decided_update

        return decided_update(run, train, say)

    def stretches(self, job: "TrainingJob", batches: Any, watchers: Any) -> Any:
        """Period by period."""
        from recsmith.training.systems.periods.stretches import stretches

        return None if job.run.data.periods is None else stretches(job, batches, watchers)


class LearnedUpdate(Attached):
    """How a job learns new periods. update: by which, as a run names it."""

    def __init__(self, update: Any) -> None:
        from recsmith.training.systems.periods.updates import update_of

        self.update = update_of(update)

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Begin, or go on from what a checkpoint kept."""
        if kept is not None:
            self.update.from_raw(kept)

    def to_raw(self) -> Raw | None:
        """What a checkpoint keeps."""
        return self.update.to_raw()


def _update(periods: Periods) -> str:
    return parsed(periods.update, "data.periods.update")[0]


SYSTEM = InOrder()
