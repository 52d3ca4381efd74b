"""The interface of a training step: it takes batches, and does the forward pass, the backward pass and the update.

A step of yours is a class that is called with the remaining batches, and takes as many of them as it wants:

    class Accumulated:                                    # pipeline: {name: my_steps:Accumulated, batches: 4}
        batches_ahead = 0
        def __init__(self, job: ShardedJob, *, batches: int) -> None: ...
        def __call__(self, batches) -> StepOutcome: ...   # StopIteration if none is left
        def pause(self) -> None: ...
        def resume(self) -> None: ...

B samples of a step on this rank, L labels
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from recsmith.data import Batch
from recsmith.files import Raw
from recsmith.training.batches import Place, TrainingBatch


@dataclass(frozen=True)
class StepOutcome:
    """The result of a step: loss, logits (B, L), labels (B, L), and the places of its batches, in order.

    said: for a long step, facts for log.jsonl and words for people. ended: whether a rank was asked to end during the
    step; every rank has the same value for the same step.
    """

    loss: torch.Tensor
    logits: torch.Tensor
    labels: torch.Tensor
    places: tuple[Place, ...]
    said: tuple[Raw, str] | None = None
    ended: bool = False

    @property
    def samples(self) -> list[Batch]:
        """The batches as they were read."""
        return [place.samples for place in self.places]

    @property
    def asked(self) -> int:
        """Samples that this rank was assigned to read."""
        return sum(place.asked for place in self.places)

    @property
    def corrupt(self) -> int:
        """How many of these could not be read."""
        return self.asked - sum(len(place.samples) for place in self.places)


class TrainingStep(Protocol):
    """Trains on the next batches. It is made from the sharded job and its own settings, on every rank."""

    @property
    def batches_ahead(self) -> int:
        """Later batches whose ids the first step also sends between ranks: it sends more than any other step."""
        ...

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train one step. Raises StopIteration if no batch is left."""
        ...

    def pause(self) -> None:
        """Let the model be called without this step from now on, as by evaluation; also called after the last step."""
        ...

    def resume(self) -> None:
        """Continue with this step; batches that it took ahead are trained next."""
        ...


class UnpipelinedStep:
    """Base of steps that take no batch ahead, and leave the model as TorchRec made it."""

    batches_ahead = 0

    def pause(self) -> None:
        """Nothing to put aside."""

    def resume(self) -> None:
        """Nothing to restore."""
