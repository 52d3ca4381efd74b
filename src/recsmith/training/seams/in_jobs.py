"""What a system is asked while a job trains, and of the model that it leaves: state, lines, figures, files.

Without torch, but for what stands behind TYPE_CHECKING.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from recsmith._types import Ints
from recsmith.files import Raw
from recsmith.plans import Plan

if TYPE_CHECKING:
    from torch import nn

    from recsmith.training.job.card import ModelCard
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.job.preparing import PreparedRun
    from recsmith.training.job.sharded import ShardedJob
    from recsmith.training.run.run import Run, RunModel

Kind = TypeVar("Kind")


class Attached(Protocol):
    """What a system has in a job while it trains, beside the components that the run names.

    One that derives this does nothing where it says nothing.
    """

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Begin a job of so many steps (None: nobody knows), or go on from what a checkpoint kept."""

    def before_step(self, job: "TrainingJob") -> None:
        """Do what is due before the next step of a TrainingJob."""

    def to_raw(self) -> Raw | None:
        """What a checkpoint keeps; None for nothing."""
        return None


def attached_in(job: "TrainingJob", key: str, kind: type[Kind]) -> Kind | None:
    """What a system has attached to a job under a key, where that is of this kind; None elsewhere."""
    found = job.attached.get(key)
    return found if isinstance(found, kind) else None


class InJobs:
    """What a system does in a job from its first line to its last, and what a checkpoint keeps of it."""

    def attached(self, run: "Run", model: "nn.Module") -> Attached | None:
        """What it has in a job while that trains. model: before it is sharded."""
        return None

    def begin_weights(self, made: "PreparedRun", job: "ShardedJob") -> None:
        """Change what was drawn for a fresh start of a PreparedRun, on every rank of a ShardedJob."""

    def watched_before(self, run: "Run") -> tuple[Mapping[str, Raw], str] | None:
        """What watchers kept of the training that a run starts from, by their names, and its path."""
        return None

    def begins_with(self, before: "RunModel", model: "RunModel", tables: Sequence[str], path: str) -> Sequence[str]:
        """Lines of what comes along when a model of a run begins with the tables of a training; raises where it cannot.

        before: the training's model. tables: that come along. path: of the training, as the run names it.
        """
        return ()

    def begin_rows(self, run: "Run", job: "ShardedJob", before: Any, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        """Take along what belongs to rows of tables; where rows stand now that stood elsewhere: rows there, -1 of new.

        before: the training, opened. rows: there, of each table that comes along.
        """
        return {}

    def as_before(self, before: "Run", run: "Run") -> "Run":
        """The run, of whose choices that build its model those that are auto are as in the checkpoint of `before`."""
        return run

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Raise where a run cannot go on from a checkpoint of `before`."""

    def tensors(self, run: "Run", job: "ShardedJob") -> Mapping[str, Any]:
        """What checkpoints keep of it beside tables and layers, by names of their own, on the rank that has each.

        Those of a checkpoint are loaded into them. job: a ShardedJob.
        """
        return {}

    def loaded(self, run: "Run", job: "ShardedJob") -> None:
        """Do what is due once a checkpoint was loaded into `tensors`."""

    def start_facts(self, run: "Run", plan: Plan) -> Raw:
        """What the line `start` of log.jsonl says of it."""
        return {}

    def start_lines(self, run: "Run", plan: Plan) -> Sequence[str]:
        """What a job says of it when it starts."""
        return ()

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """(what a line of log.jsonl says of a job, the same in words), on every rank. steps: since the line before."""
        return {}, ""

    def rank_times(self, job: "TrainingJob", ranks: int) -> Raw:
        """What the times of all ranks, which a job writes at its end, say of it."""
        return {}

    def at_the_end(self, job: "TrainingJob", times: Raw) -> str | None:
        """What it would bring, by the times of all ranks."""
        return None

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """What it brought to a job that ends, beside what was told: a sentence by each of its keys that is on.

        By figures that the job has, and nothing where it has none. Called on every rank; what rank 0 says is told.
        """
        return {}

    def result(self, job: "TrainingJob") -> Raw:
        """What the result of a training says of it; called on every rank."""
        return {}

    def stretches(self, job: "TrainingJob", batches: Any, watchers: Any) -> Any:
        """The batches of a job in parts, between which something is done; None for all at once."""
        return None


class OfModels:
    """What a system writes into the folder of a trained model, and how the model is scored with it."""

    def write_files(self, run: "Run", job: "ShardedJob", folder: Path) -> None:
        """Write files of its own into the folder of a trained model, on every rank. job: a ShardedJob."""

    def exported(self, run: "Run", model: "nn.Module") -> Raw:
        """What the card of the trained model says of it. model: the sharded one."""
        return {}

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run by whose settings a trained model is scored. card: the model's. folder: of the run.

        One of another package is asked where it said something in the card.
        """
        return run

    def keep_files(self, model: "RunModel", folder: Path) -> "RunModel":
        """Copy files that a model's settings name into the folder of what was trained; the model that names these."""
        return model

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """The model of a card in a folder, with the paths of such files there."""
        return model

    def before_serving(self, model: "nn.Module", card: "ModelCard") -> None:
        """Change a trained model, by its card, as it was in training."""
