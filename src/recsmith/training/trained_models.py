"""What the steps of a job train, one model or several at once, and what is done for each of them beside steps."""

from typing import Protocol

from recsmith.files import Raw
from recsmith.training.job.job import TrainingJob, evaluate_now, finish, log_progress, save
from recsmith.training.job.log import StepTimes
from recsmith.training.job.metrics import Window
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

    def poll(self) -> None:
        """Look whether a checkpoint that is written beside steps has ended; called after each step."""
        ...

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end; what came of it. ended: by a signal, after which there is no model."""
        ...


class OneModel:
    """The model of a job that trains one."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self._window = Window(job.sharded.device, job.source.schema.labels)

    def took(self, outcome: StepOutcome) -> None:
        """Keep the predictions of a step."""
        self._window.add(outcome.logits, outcome.labels)

    def agree(self) -> None:
        """Nothing: watchers look at its loss."""

    def tell(self, times: StepTimes, total: int | None) -> None:
        """Write scores and times since the last line of the log."""
        self.job.progress.scores = self._window.scores()
        log_progress(self.job, times, total)

    def evaluate(self) -> None:
        """Write scores on data.test."""
        evaluate_now(self.job)

    def save(self) -> None:
        """Save the state."""
        save(self.job)

    def poll(self) -> None:
        """Look whether a checkpoint in the background has ended."""
        self.job.checkpoints.poll()

    def finish(self, *, ended: bool) -> Raw:
        """Save, score and export at the end."""
        return finish(self.job, ended=ended)
