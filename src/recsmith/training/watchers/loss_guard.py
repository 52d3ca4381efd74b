"""Detects a loss that is not finite, on its rank, ends training on all ranks, and keeps the batch for inspection."""

import math
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

    On a GPU it detects this one step late, so that no step waits for the device. then: fail ends training; roll_back
    continues from the newest checkpoint instead.
    """

    def __init__(self, *, then: Literal["fail", "roll_back"] = "fail") -> None:
        self.then: Literal["diverged", "roll_back"] = "diverged" if then == "fail" else then
        self._before: tuple[int, torch.Tensor, Place] | None = None
        self._kept: str | None = None  # the message about the first batch whose loss was not finite

    def look(self, seen: Seen) -> Wish | None:
        """Check the loss of this step; on a GPU, of the step before."""
        now = seen.step, seen.outcome.loss, seen.outcome.places[-1]
        looked_at = self._before if seen.outcome.loss.is_cuda else now
        self._before = now
        if looked_at is None or math.isfinite(float(looked_at[1])):
            return None
        if self._kept is None:
            self._kept = keep(looked_at[0], looked_at[2], seen.job.output)
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
