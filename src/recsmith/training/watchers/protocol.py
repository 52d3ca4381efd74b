"""What a watcher is: it looks at steps, and may ask for something, with a reason.

    class Patience(Watcher):                            # watchers: [{name: my_watchers:Patience, steps: 500}]
        def __init__(self, *, steps: int) -> None: ...
        def look(self, seen: Seen) -> Wish | None:
            if self.best_is_old(seen.loss): return Wish("stop", f"the loss fell last {self.steps} steps ago")

Every rank has its own and looks at its own batch. A wish of any rank is heard by all, at the same step, and nobody
waits for it: at most 16 steps later. What is done and why stands in log.jsonl, in TensorBoard and on the terminal.
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
    """A step that was trained: its number, what came of it on this rank, and the job, whose state is after the step.

    waited_s: seconds that this rank waited for the data of the step.
    """

    step: int
    outcome: StepOutcome
    job: TrainingJob
    waited_s: float = 0.0

    @property
    def loss(self) -> float:
        """The loss of this rank's batch; on a GPU this waits for it."""
        return float(self.outcome.loss)


@dataclass(frozen=True)
class SeenScores:
    """Scores on data.test after a step, of all ranks' samples: every rank has the same."""

    step: int
    scores: Scores
    job: TrainingJob


@dataclass(frozen=True)
class SeenPeriod:
    """Scores of a period of the stream by a model that has not trained on it; of all ranks' samples.

    ahead: how many periods it is after the newest one that the model has trained on; 1 is the next.
    """

    period: int
    ahead: int
    scores: Scores
    job: TrainingJob


@dataclass(frozen=True)
class SeenLine:
    """A line of log.jsonl: its event, such as train or test, what it says, and the job; of rank 0."""

    event: str
    values: Raw
    job: TrainingJob


class Watcher(Protocol):
    """Looks at every so many steps. One is made on each rank when the job begins, and lasts as long as the job."""

    every: int = 1

    def look(self, seen: Seen) -> Wish | None:
        """Look at a step whose number is a multiple of `every`."""
        ...

    def look_at_end(self, seen: Seen) -> Wish | None:
        """The last step was trained, which is given once more, and nothing is scored or exported yet; on every rank."""
        return None

    def look_at_scores(self, seen: SeenScores) -> Wish | None:
        """Look at an evaluation while the job trains; called on every rank, which may do something together."""
        return None

    def look_at_period(self, seen: SeenPeriod) -> Wish | None:
        """Look at a period of a stream that was scored, before it is trained on."""
        return None

    def hear(self, line: SeenLine) -> None:
        """Hear of a line of log.jsonl, on rank 0; what this raises is told once, and training goes on without it."""

    def to_raw(self) -> Raw | None:
        """What a checkpoint keeps of it (JSON data), of rank 0; None for nothing."""
        return None

    def from_raw(self, raw: Raw) -> None:
        """Go on from what a checkpoint kept, on every rank; not called when training rolls back."""

    def begin_after(self, raw: Raw, path: str) -> None:
        """Begin with what a watcher of this name kept of the training that the run starts from, on every rank."""

    def close(self, error: BaseException | None) -> None:
        """The job is over. error: what it ended with, where it failed."""
