"""Batches of a rank as tensors, each with the state of its source that follows it.

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

ALIGNMENT = 64  # bytes: PyTorch's own tensors on CPU begin at multiples of so many


@dataclass(frozen=True)
class Place:
    """The samples of a batch as they were read, and where the data goes on once training has used them.

    asked: samples that the rank was to read. Its tensors may have more: the last ones are empty.
    """

    samples: Batch
    asked: int
    state: State | None = None


class TrainingBatch(Pipelineable):
    """Some samples on a device: dense_features (B, D), sparse_features, labels (B, L); `place` stays on the host."""

    def __init__(
        self, dense_features: torch.Tensor, sparse_features: Any,
        labels: torch.Tensor, place: Place,
    ) -> None:  # fmt: skip
        self.dense_features, self.sparse_features, self.labels = dense_features, sparse_features, labels
        self.place = place

    def to(self, device: torch.device, non_blocking: bool = False) -> "TrainingBatch":
        """The batch on a device; itself where it is there already."""
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
        """The batch in memory that a GPU reads without the processor."""
        return TrainingBatch(
            self.dense_features.pin_memory(), self.sparse_features.pin_memory(), self.labels.pin_memory(), self.place
        )


def pinned(batches: Iterator[TrainingBatch], device: torch.device) -> Iterator[TrainingBatch]:
    """The batches in memory from which a GPU copies while the processor goes on; on CPU as they are."""
    return map(TrainingBatch.pin_memory, batches) if device.type == "cuda" else batches


def as_tensors(
    batch: Batch, features: Features, state: State | None = None, asked: int | None = None, rows: int | None = None
) -> TrainingBatch:
    """A batch of the data as tensors; data without dense columns gets a column of ones.

    asked: samples that the rank was to read. rows: of the tensors, since collectives want as many of every rank; those
    that the batch lacks are empty.
    """
    place = Place(batch, len(batch) if asked is None else asked, state)
    if (rows or place.asked) > len(batch):
        batch = filled_up(expanded(batch), rows or place.asked)
    dense = aligned(batch.dense) if batch.dense.shape[1] else torch.ones(len(batch), 1)
    return TrainingBatch(dense, features.tensors(batch), aligned(batch.labels), place)


def aligned(values: npt.NDArray[Any]) -> torch.Tensor:
    """The values, in memory that begins where a tensor's own would.

    The first batch that a job goes on with lies elsewhere in its block of data, and on some processors MKL adds up a
    product in another order where memory begins elsewhere. NumPy copies, for an operator of PyTorch's would stand in
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
    """The batches of a rank from a state of the source on. step: steps that were done before, which says the size."""
    over, mixed = False, getattr(source, "mixed", 1)  # batches that a step takes together, of some sources
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
    """The batches of a run on this rank of a job, after so many steps and from a state of the source on."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return training_batches(
        source, run.data.batch_sizes(ranks), features, rank=rank, ranks=ranks, state=state, step=step
    )


def evaluation_batches(
    dataset: Dataset, features: Features, *, rank: int, ranks: int, batch_size: int
) -> Iterator[tuple[TrainingBatch, int]]:
    """(batch, samples in it) of a rank in one pass over all samples, none left out and none twice.

    Every batch is filled up with samples without ids, since codecs and kernels want full ones.
    """
    for batch in dataset.batches(
        rank=rank, world_size=ranks, batch_size=batch_size, seed=0, shuffle=False, drop_last=False
    ):
        yield as_tensors(filled_up(batch, batch_size), features), len(batch)


def filled_up(batch: Batch, count: int) -> Batch:
    """The batch with samples of no ids, zeros and number -1 after its own, until there are so many."""
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
