"""The batch whose loss was not finite, kept for whoever looks for the cause."""

from pathlib import Path

import numpy as np

from recsmith.data import Batch


def save_batch(batch: Batch, target: Path) -> None:
    """Write a batch as .npz: dense, labels, sample_ids, and values, lengths and weights of each feature."""
    arrays = {"dense": batch.dense, "labels": batch.labels, "sample_ids": batch.sample_ids}
    for name, ids in batch.ids.items():
        arrays |= {f"values/{name}": ids.values, f"lengths/{name}": ids.lengths}
        if ids.weights is not None:
            arrays[f"weights/{name}"] = ids.weights
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(target, allow_pickle=False, **arrays)  # type: ignore[arg-type]
