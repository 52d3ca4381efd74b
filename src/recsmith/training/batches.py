"""Batches of a rank as tensors, each with the state of its source after the batch.

B samples of this rank, D dense columns, L labels
"""

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torchrec.streamable import Pipelineable

from recsmith.data import Batch, Dataset
from recsmith.data.deduplication import expanded
from recsmith.training.run import Run
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources.protocol import BatchSource, State
from recsmith.training.tables.features import Features

ALIGNMENT = 64  # bytes; PyTorch's own CPU tensors begin at multiples of this


@dataclass(frozen=True)
class Place:
    """The samples of a batch as they were read, and the source's state after it.

    asked: samples that the rank was assigned to read. The tensors may have more: the last ones are then empty.
    """

    samples: Batch
    asked: int
    state: State | None = None


class TrainingBatch(Pipelineable):
    """Samples on a device: dense_features (B, D), sparse_features, labels (B, L); `place` stays on the host."""

    def __init__(
        self, dense_features: torch.Tensor, sparse_features: Any,
        labels: torch.Tensor, place: Place,
    ) -> None:  # fmt: skip
        self.dense_features, self.sparse_features, self.labels = dense_features, sparse_features, labels
        self.place = place

    def to(self, device: torch.device, non_blocking: bool = False) -> "TrainingBatch":
        """The batch on a device; itself if it is there already."""
        if device.type == "cpu" and self.labels.device.type == "cpu":
            return self
        return TrainingBatch(
            self.dense_features.to(device, non_blocking=non_blocking),
            self.sparse_features.to(device, non_blocking=non_blocking),
            self.labels.to(device, non_blocking=non_blocking),
            self.place,
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the batch's memory until a stream is done with it."""
        for tensor in (self.dense_features, self.sparse_features, self.labels):
            tensor.record_stream(stream)  # type: ignore[arg-type]

    def pin_memory(self) -> "TrainingBatch":
        """The batch in pinned memory, from which a GPU copies without the processor."""
        return TrainingBatch(
            self.dense_features.pin_memory(), self.sparse_features.pin_memory(), self.labels.pin_memory(), self.place
        )


def pinned(batches: Iterator[TrainingBatch], device: torch.device) -> Iterator[TrainingBatch]:
    """The batches in pinned memory, from which a GPU copies asynchronously; unchanged on CPU."""
    return map(TrainingBatch.pin_memory, batches) if device.type == "cuda" else batches


def as_tensors(
    batch: Batch, features: Features, state: State | None = None, asked: int | None = None, rows: int | None = None
) -> TrainingBatch:
    """A batch of the data as tensors; data without dense columns gets a column of ones.

    asked: samples that the rank was assigned to read. rows: rows of the tensors, because collectives need the same
    number on every rank; rows beyond the batch are empty.
    """
    place = Place(batch, len(batch) if asked is None else asked, state)
    if (rows or place.asked) > len(batch):
        batch = filled_up(expanded(batch), rows or place.asked)
    dense = aligned(batch.dense) if batch.dense.shape[1] else torch.ones(len(batch), 1)
    return TrainingBatch(dense, features.tensors(batch), aligned(batch.labels), place)


def aligned(values: npt.NDArray[Any]) -> torch.Tensor:
    """The values as a tensor, in memory aligned like a tensor's own.

    The first batch of a resumed job is at another offset in its block of data, and on some processors MKL sums a
    product in another order at another alignment. NumPy does the copy, because an operator of PyTorch's would be in
    some of a job's captured steps and not in others.
    """
    if values.ctypes.data % ALIGNMENT:
        room = np.empty(values.nbytes + ALIGNMENT, np.uint8)
        first = -room.ctypes.data % ALIGNMENT
        copy = room[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
        copy[...] = values
        values = copy
    return torch.from_numpy(values)


def training_batches(
    source: BatchSource, sizes: BatchSizes, features: Features, *, rank: int, ranks: int, state: State | None = None,
    step: int = 0,
) -> Iterator[TrainingBatch]:  # fmt: skip
    """The batches of a rank after a state of the source. step: steps done before, which decides the batch size."""
    over, mixed = False, getattr(source, "mixed", 1)  # batches of a step, for sources that mix several
    while not over:
        size, more = sizes.at(step)
        first, batches = step, source.batches(rank, ranks, size, state)
        try:
            for batch, after in itertools.islice(batches, more):
                step, state = step + 1, after
                yield as_tensors(batch, features, state, len(batch) + batch.corrupt, size * mixed)
        finally:
            if isinstance(batches, Generator):
                batches.close()
        over = more is None or step - first < more


def batches_here(
    run: Run, source: BatchSource, features: Features, *, step: int, state: State | None
) -> Iterator[TrainingBatch]:
    """The batches of a run on this rank of a job, after `step` steps and from a state of the source."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return training_batches(
        source, run.data.batch_sizes(ranks), features, rank=rank, ranks=ranks, state=state, step=step
    )


def evaluation_batches(
    dataset: Dataset, features: Features, *, rank: int, ranks: int, batch_size: int
) -> Iterator[tuple[TrainingBatch, int]]:
    """(batch, number of real samples in it) of a rank, in one pass over all samples, each exactly once.

    Every batch is filled up with samples without ids, because codecs and kernels need full batches.
    """
    for batch in dataset.batches(
        rank=rank, world_size=ranks, batch_size=batch_size, seed=0, shuffle=False, drop_last=False
    ):
        yield as_tensors(filled_up(batch, batch_size), features), len(batch)


def filled_up(batch: Batch, count: int) -> Batch:
    """The batch extended to `count` samples by samples without ids, with zeros and sample id -1."""
    missing = count - len(batch)
    if missing <= 0:
        return batch

    def longer(values: np.ndarray, fill: int = 0) -> np.ndarray:
        return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])

    return Batch(
        dense=longer(batch.dense),
        ids={name: replace(ids, lengths=longer(ids.lengths)) for name, ids in batch.ids.items()},
        labels=longer(batch.labels),
        label_names=batch.label_names,
        sample_ids=longer(batch.sample_ids, -1),
        weights=None if batch.weights is None else longer(batch.weights),
        loss_weights=None if batch.loss_weights is None else longer(batch.loss_weights),
    )
