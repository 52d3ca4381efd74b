"""What a system contributes while a job trains, and to the model that the job produces: state, lines, figures, files.

Without torch, except behind TYPE_CHECKING.
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
    """An object that a system keeps in a job while it trains, in addition to the components that the run names.

    A method that a derived class leaves out does nothing.
    """

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Begin a job of `steps` steps (None if unknown), or continue from what a checkpoint kept."""

    def before_step(self, job: "TrainingJob") -> None:
        """Do what is due before the next step of a TrainingJob."""

    def to_raw(self) -> Raw | None:
        """The state that a checkpoint keeps; None for nothing."""
        return None


def attached_in(job: "TrainingJob", key: str, kind: type[Kind]) -> Kind | None:
    """What a system has attached to a job under a key, if it is of this class; otherwise None."""
    found = job.attached.get(key)
    return found if isinstance(found, kind) else None


class InJobs:
    """What a system does in a job from start to end, and what a checkpoint keeps of it."""

    def attached(self, run: "Run", model: "nn.Module") -> Attached | None:
        """The object that it keeps in a job during training; None for nothing. model: before it is sharded."""
        return None

    def begin_weights(self, made: "PreparedRun", job: "ShardedJob") -> None:
        """Change the initial weights of a fresh start, on every rank. made: a PreparedRun. job: a ShardedJob."""

    def watched_before(self, run: "Run") -> tuple[Mapping[str, Raw], str] | None:
        """(watchers' states, by name, of the training that a run starts from; its path); None if there is none."""
        return None

    def begins_with(self, before: "RunModel", model: "RunModel", tables: Sequence[str], path: str) -> Sequence[str]:
        """Lines about what a run takes over from the tables of another training; raises if it cannot start with them.

        before: the other training's model. tables: names of the tables that are taken over. path: of that training, as
        the run names it.
        """
        return ()

    def begin_rows(self, run: "Run", job: "ShardedJob", before: Any, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        """Take over what belongs to rows of tables; returns the source row of each row, by table whose rows moved.

        The source row is -1 for a new row. before: the other training, opened. rows: number of rows there, of each
        table that is taken over.
        """
        return {}

    def as_before(self, before: "Run", run: "Run") -> "Run":
        """The run, with choices that affect its model and are `auto` set as in the checkpoint of `before`."""
        return run

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Raise if a run cannot continue from a checkpoint of `before`."""

    def tensors(self, run: "Run", job: "ShardedJob") -> Mapping[str, Any]:
        """Tensors that checkpoints also keep, by their own names, on the rank that has each.

        When a checkpoint is loaded, its tensors are loaded into these. job: a ShardedJob.
        """
        return {}

    def loaded(self, run: "Run", job: "ShardedJob") -> None:
        """Do what is due after a checkpoint was loaded into `tensors`."""

    def start_facts(self, run: "Run", plan: Plan) -> Raw:
        """Facts that it adds to the line `start` of log.jsonl."""
        return {}

    def start_lines(self, run: "Run", plan: Plan) -> Sequence[str]:
        """Lines that a job shows about it when it starts."""
        return ()

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """(facts for a line of log.jsonl, the same in words), on every rank. steps: steps since the line before."""
        return {}, ""

    def rank_times(self, job: "TrainingJob", ranks: int) -> Raw:
        """What it derives from the times of all ranks, which a job writes at its end."""
        return {}

    def at_the_end(self, job: "TrainingJob", times: Raw) -> str | None:
        """A sentence about what the system would gain, from the times of all ranks; None for nothing."""
        return None

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """What the system gained in a job that ends: a sentence for each of its keys that is on.

        It uses the job's own figures, and returns nothing if there are none. Called on every rank; rank 0's answer is
        reported.
        """
        return {}

    def result(self, job: "TrainingJob") -> Raw:
        """Facts that it adds to the result of a training; called on every rank."""
        return {}

    def stretches(self, job: "TrainingJob", batches: Any, watchers: Any) -> Any:
        """The batches of a job in parts, between which the system does something; None: one part."""
        return None


class OfModels:
    """What a system writes into the folder of a trained model, and how it affects the scoring of the model."""

    def write_files(self, run: "Run", job: "ShardedJob", folder: Path) -> None:
        """Write its own files into the folder of a trained model, on every rank. job: a ShardedJob."""

    def exported(self, run: "Run", model: "nn.Module") -> Raw:
        """What it adds to the card of the trained model. model: the sharded model."""
        return {}

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run whose settings are used to score a trained model. card: the model's card. folder: folder of the run.

        A system of another package is asked only if it wrote something into the card.
        """
        return run

    def keep_files(self, model: "RunModel", folder: Path) -> "RunModel":
        """Copy files that a model's settings name into the output folder; returns the model with the copies' paths."""
        return model

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """The model of a card, with paths of such files resolved in its folder."""
        return model

    def before_serving(self, model: "nn.Module", card: "ModelCard") -> None:
        """Change a trained model according to its card, so that it computes what it computed in training."""
