"""What makes a training step: it takes batches, and owns the forward pass, the backward pass and the update.

A step of yours is a class that is called with the batches that are left, and takes as many as it wants of them:

    class Accumulated:                                    # pipeline: {name: my_steps:Accumulated, batches: 4}
        batches_ahead = 0
        def __init__(self, job: ShardedJob, *, batches: int) -> None: ...
        def __call__(self, batches) -> StepOutcome: ...   # StopIteration where none is left
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
    """What a step trained on: loss, logits (B, L), labels (B, L), and the places of its batches, in order.

    said: of a long step, facts for log.jsonl and words for people. ended: a rank was asked to end within the step, and
    every rank says so of the same step.
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
        """Samples that this rank was to read."""
        return sum(place.asked for place in self.places)

    @property
    def corrupt(self) -> int:
        """Those of them that could not be read."""
        return self.asked - sum(len(place.samples) for place in self.places)


class TrainingStep(Protocol):
    """A way to train on the next batches. It is made of the sharded job and its own settings, on every rank."""

    @property
    def batches_ahead(self) -> int:
        """Batches whose ids cross ranks in the first step beside its own: that step sends more than all others."""
        ...

    def __call__(self, batches: Iterator[TrainingBatch]) -> StepOutcome:
        """Train one step. Raises StopIteration where no batch is left."""
        ...

    def pause(self) -> None:
        """Let the model be called without this step from here on, as evaluation does; also after the last step."""
        ...

    def resume(self) -> None:
        """Go on with this step; batches that it took ahead are trained next."""
        ...


class UnpipelinedStep:
    """What steps have in common that look at no batch ahead, and leave the model as TorchRec made it."""

    batches_ahead = 0

    def pause(self) -> None:
        """Nothing has to be put aside."""

    def resume(self) -> None:
        """Nothing has been put aside."""
