"""Detects a loss that is not finite, on its rank, ends training on all ranks, and keeps the batch for inspection."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist

from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.training.batches import Place
from recsmith.training.watchers.protocol import Seen, Watcher, Wish


class LossGuard(Watcher):
    """Ends training when a loss is not finite, and keeps the batch.

    On a GPU it checks a step when the next one has begun, so that no step waits for the device; before the state is
    saved, and at the end, it checks the newest one. then: fail ends training; roll_back continues from the newest
    checkpoint instead, but fails at the end of training, where no step is left in which the loss could recover.
    """

    def __init__(self, *, then: Literal["fail", "roll_back"] = "fail") -> None:
        self.then: Literal["diverged", "roll_back"] = "diverged" if then == "fail" else then
        self._newest: tuple[int, torch.Tensor, Place] | None = None
        self._kept: str | None = None  # the message about the first batch whose loss was not finite

    def look(self, seen: Seen) -> Wish | None:
        """Check the loss of this step; on a GPU, of the step before."""
        before, self._newest = self._newest, (seen.step, seen.outcome.loss, seen.outcome.places[-1])
        return self._checked(before if seen.outcome.loss.is_cuda else self._newest, seen.job.output)

    def look_before_saving(self, seen: Seen) -> Wish | None:
        """Check the loss of the newest step, whose state is about to be saved."""
        return self._checked(self._newest, seen.job.output)

    def look_at_end(self, seen: Seen) -> Wish | None:
        """Check the loss of the last step; without another step to come, training fails."""
        wish = self._checked(self._newest, seen.job.output)
        return wish and replace(wish, what="diverged")

    def leave(self) -> None:
        """Forget the newest step, which is trained again or was checked, and the batch of an earlier roll-back."""
        self._newest = self._kept = None

    def _checked(self, step: tuple[int, torch.Tensor, Place] | None, output: Path) -> Wish | None:
        """The wish if the loss of a step is not finite."""
        if step is None or math.isfinite(float(step[1])):
            return None
        if self._kept is None:
            self._kept = keep(step[0], step[2], output)
        return Wish(self.then, self._kept)


def keep(step: int, place: Place, output: Path) -> str:
    """Save the batch of a step in a run's folder; returns the message about it."""
    file = output / f"broken-batch-step-{step}-rank-{dist.get_rank()}.npz"
    save_batch(expanded(place.samples), file)
    return (
        f"the loss of step {step} is not finite; its batch is in '{file}', and checkpoints are from before it: "
        "lower optimizers.dense.learning_rate or optimizers.sparse.learning_rate, set "
        "optimizers.dense.clip_norm, or look at the batch"
    )


def save_batch(batch: Batch, target: Path) -> None:
    """Write a batch as .npz: dense, labels, sample_ids, and values, lengths and weights of each feature."""
    arrays = {"dense": batch.dense, "labels": batch.labels, "sample_ids": batch.sample_ids}
    for name, ids in batch.ids.items():
        arrays |= {f"values/{name}": ids.values, f"lengths/{name}": ids.lengths}
        if ids.weights is not None:
            arrays[f"weights/{name}"] = ids.weights
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, allow_pickle=False, **arrays)  # type: ignore[arg-type]
