"""A loss that is not finite: noticed on its rank, told to all, and its batch kept for whoever looks for the cause."""

import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from recsmith.data import Batch
from recsmith.data.deduplication import expanded
from recsmith.errors import RecSmithError
from recsmith.training.batches import Place


class LossGuard:
    """Notices a loss that is not finite: on a GPU a step late, so that no step waits for the device."""

    def __init__(self, device: torch.device) -> None:
        self.late = device.type == "cuda"
        self._before: tuple[int, torch.Tensor, Place] | None = None
        self.culprit: tuple[int, Place] | None = None

    def look(self, step: int, loss: torch.Tensor, place: Place) -> None:
        """Look at the loss of this step (of the one before, on a GPU); the first that is not finite is the culprit."""
        looked_at = self._before if self.late else (step, loss, place)
        self._before = step, loss, place
        if looked_at is not None and self.culprit is None and not math.isfinite(float(looked_at[1])):
            self.culprit = looked_at[0], looked_at[2]

    def refuse(self, output: Path) -> None:
        """Save this rank's batch if it was the cause, and end training.

        Raises:
            RecSmithError: always.
        """
        if self.culprit is None:
            time.sleep(1.0)  # the rank that knows more speaks first
            raise RecSmithError("the loss of another rank is not finite")
        step, place = self.culprit
        file = output / f"broken-batch-step-{step}-rank-{dist.get_rank()}.npz"
        save_batch(expanded(place.samples), file)
        raise RecSmithError(
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
