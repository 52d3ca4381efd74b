"""What the steps of a job train, one model or several at once, and what is done for each of them beside steps."""

from typing import Protocol

from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.training.job.agreement import Wish
from recsmith.training.job.job import TrainingJob
from recsmith.training.job.log import StepTimes
from recsmith.training.steps.protocol import StepOutcome


class TrainedModels(Protocol):
    """The models that a job's steps train; the loop calls this on every rank, in the same order.

    job: whose steps these are. The loop counts its steps; each model may be a job of its own beside it.
    """

    @property
    def job(self) -> TrainingJob:
        """The job whose steps these are."""
        ...

    def took(self, outcome: StepOutcome) -> None:
        """A step was trained: keep its predictions, and how far each model is."""
        ...

    def agree(self) -> None:
        """All ranks look at what each of them has seen; called now and then, and after the last step."""
        ...

    def tell(self, times: StepTimes, total: int | None) -> None:
        """Write scores and times since the last line of the log. total: steps of the whole run."""
        ...

    def evaluate(self) -> None:
        """Write scores on data.test."""
        ...

    def save(self) -> None:
        """Save the state."""
        ...

    def plan_anew(self, wish: Wish) -> tuple[Plan | None, str]:
        """Another plan to go on under from the state that was just saved; None where none is better, and why."""
        ...

    def poll(self) -> None:
        """Look whether a checkpoint that is written beside steps has ended; called after each step."""
        ...

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end; what came of it. ended: by a signal, after which there is no model."""
        ...
