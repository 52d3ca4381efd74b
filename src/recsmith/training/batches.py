"""Batches of a rank as tensors, in the order of the run's seed, each with the position that follows it.

B samples of this rank, D dense columns, L labels
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchrec.streamable import Pipelineable

from recsmith.data import Batch, Batches, Dataset, Position
from recsmith.data.deduplication import expanded
from recsmith.errors import UsageError
from recsmith.feeding import Feed, FeedSettings, engine_of, status_file
from recsmith.training.run_data import RunData
from recsmith.training.tables.features import Features


@dataclass(frozen=True)
class Place:
    """The samples of a batch as they were read, and where the data goes on once training has used them.

    asked: samples that the rank was to read, which its tensors have; where some were corrupt, the last ones are empty.
    """

    samples: Batch
    asked: int
    position: Position | None = None


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
    batch: Batch, features: Features, position: Position | None = None, asked: int | None = None
) -> TrainingBatch:
    """A batch of the data as tensors; data without dense columns gets a column of ones.

    asked: samples of the tensors, since collectives want as many of every rank; those that the batch lacks are empty.
    """
    place = Place(batch, len(batch) if asked is None else asked, position)
    if place.asked > len(batch):
        batch = filled_up(expanded(batch), place.asked)
    dense = torch.from_numpy(batch.dense) if batch.dense.shape[1] else torch.ones(len(batch), 1)
    return TrainingBatch(dense, features.tensors(batch), torch.from_numpy(batch.labels), place)


def training_batches(
    dataset: Dataset, data: RunData, features: Features, *, rank: int, ranks: int, seed: int,
    position: Position | None = None, step: int = 0, endless: bool = False, output: Path | None = None,
) -> Iterator[TrainingBatch]:  # fmt: skip
    """The batches of a rank, epoch after epoch, from a position on, which may come from another number of ranks.

    step: steps that were done before. endless: go on after data.epochs, for as long as somebody asks. output: a folder
    in which a feed tells how it does.

    Raises:
        UsageError: the data has too few samples for one step.
    """
    epoch, sizes = position.epoch if position else 0, data.batch_sizes(ranks)
    while endless or epoch < data.epochs:
        beginning = data_position(dataset, data, seed, epoch)
        start, before, over = position or beginning, step, False
        dataset.check_position(start, beginning)
        while not over:
            size, more = sizes.at(step)
            first = step
            with _batches(dataset, data, features, start, rank, ranks, size, output) as batches:
                for batch in itertools.islice(batches, more):
                    step, start = step + 1, batches.position
                    yield as_tensors(batch, features, start, size)
            over = more is None or step - first < more
        if step == before and start == beginning:
            raise _too_few(dataset, sizes.at(step)[0], ranks)
        epoch, position = epoch + 1, None


def _too_few(dataset: Dataset, size: int, ranks: int) -> UsageError:
    known = dataset.num_samples
    return UsageError(
        f"data.train holds {'too few' if known is None else f'{known:,}'} samples, and a step takes {size * ranks:,} "
        f"({size:,} on each of {ranks} ranks); give a smaller data.batch_size, or more data"
    )


def data_position(dataset: Dataset, data: RunData, seed: int, epoch: int) -> Position:
    """Where an epoch of a run begins."""
    return Position(
        epoch=epoch, used=0, seed=seed, shuffle=data.shuffle, dataset=dataset.source.digest,
        together=data.keep_together, window=data.window,
    )  # fmt: skip


def _batches(
    dataset: Dataset, data: RunData, features: Features, position: Position, rank: int, ranks: int, size: int,
    output: Path | None,
) -> Batches | Feed:  # fmt: skip
    """The batches of a rank in an epoch from a position on, read by a thread or by processes: the same ones."""
    groups = features.groups
    if data.feed is not None:
        settings = FeedSettings(
            data=data.train, position=position, rank=rank, world_size=ranks, batch_size=size, groups=groups
        )
        engine = engine_of(data.engine, settings, data.ray_address)
        return Feed(settings, data.feed, drop_last=True, engine=engine, status=output and status_file(output, rank))
    return dataset.batches(
        rank=rank, world_size=ranks, batch_size=size, seed=position.seed, shuffle=data.shuffle, position=position,
        drop_last=True, together=data.keep_together, window=data.window, deduplicate=groups,
    )  # fmt: skip


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
    )
