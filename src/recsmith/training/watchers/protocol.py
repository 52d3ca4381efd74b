"""The interface of a watcher: it checks steps, and may request an action, with a reason.

    class Patience(Watcher):                            # watchers: [{name: my_watchers:Patience, steps: 500}]
        def __init__(self, *, steps: int) -> None: ...
        def look(self, seen: Seen) -> Wish | None:
            if self.best_is_old(seen.loss): return Wish("stop", f"the loss fell last {self.steps} steps ago")

Every rank has its own watchers, which see its own batch. All ranks act on a wish of any rank at the same step, at most
16 steps later, without waiting for it. What was done and why is written to log.jsonl, TensorBoard and the terminal.
"""

from dataclasses import dataclass
from typing import Protocol

from recsmith.files import Raw
from recsmith.scoring.scores import Scores
from recsmith.training.job.agreement import Wish
from recsmith.training.job.job import TrainingJob
from recsmith.training.steps.protocol import StepOutcome


@dataclass(frozen=True)
class Seen:
    """A trained step: its number, its outcome on this rank, and the job, whose state is after the step.

    waited_s: seconds that this rank waited for the data of the step.
    """

    step: int
    outcome: StepOutcome
    job: TrainingJob
    waited_s: float = 0.0

    @property
    def loss(self) -> float:
        """The loss of this rank's batch; on a GPU, reading it waits for the device."""
        return float(self.outcome.loss)


@dataclass(frozen=True)
class SeenScores:
    """Scores on data.test after a step, over the samples of all ranks: every rank gets the same scores."""

    step: int
    scores: Scores
    job: TrainingJob


@dataclass(frozen=True)
class SeenPeriod:
    """Scores of a period of the stream, over the samples of all ranks, by a model that has not trained on it.

    ahead: how many periods it comes after the newest period that the model has trained on; 1 is the next.
    """

    period: int
    ahead: int
    scores: Scores
    job: TrainingJob


@dataclass(frozen=True)
class SeenLine:
    """A line of log.jsonl on rank 0: its event, such as train or test, its values, and the job."""

    event: str
    values: Raw
    job: TrainingJob


class Watcher(Protocol):
    """Checks every `every`-th step. One is made on each rank when the job begins, and exists as long as the job."""

    every: int = 1

    def look(self, seen: Seen) -> Wish | None:
        """Check a step whose number is a multiple of `every`."""
        ...

    def look_before_saving(self, seen: Seen) -> Wish | None:
        """Check the last step once more, before its state is saved; for watchers that check a step late."""
        return None

    def look_at_end(self, seen: Seen) -> Wish | None:
        """Check the last step once more, before the model is scored or exported; called on every rank."""
        return None

    def look_at_scores(self, seen: SeenScores) -> Wish | None:
        """Check an evaluation during training; called on every rank, so ranks may communicate."""
        return None

    def look_at_period(self, seen: SeenPeriod) -> Wish | None:
        """Check a scored period of a stream, before it is trained on."""
        return None

    def hear(self, line: SeenLine) -> None:
        """Receive a line of log.jsonl, on rank 0; an exception is reported once, and the watcher gets no more lines."""

    def to_raw(self) -> Raw | None:
        """State for a checkpoint (JSON data), from rank 0; None for nothing."""
        return None

    def from_raw(self, raw: Raw) -> None:
        """Continue from a checkpoint's state, on every rank; not called when training rolls back."""

    def begin_after(self, raw: Raw, path: str) -> None:
        """Start from the state of this watcher at the end of the training that the run starts from, on every rank."""

    def leave(self) -> None:
        """The job is prepared again: forget its model, so that it leaves memory before the next one is made."""

    def close(self, error: BaseException | None) -> None:
        """The job is over. error: the exception that it ended with; None if it did not fail."""
