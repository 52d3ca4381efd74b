"""A dataset as a batch source: epoch after epoch in an order drawn from the run's seed, read by a thread or a feed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from recsmith.data import Batch, Batches, DataSchema, Dataset, Position
from recsmith.data.dealing import Deal
from recsmith.data.slices import SlicedSource
from recsmith.errors import UsageError
from recsmith.feeding import Feed, FeedSettings, engine_of, status_file
from recsmith.files import decode, encode
from recsmith.training.run.data import BatchSizes, RunData
from recsmith.training.sources.protocol import State
from recsmith.units import counted


@dataclass(frozen=True)
class DatasetSource:
    """The samples of a dataset. A state is an encoded `Position`.

    A thread of this process reads them, or, with data.feed, worker processes, which give the same batches.

    endless: continue after data.epochs, for as long as batches are asked for. groups: groups of features of which
    batches hold only the distinct bags. output: folder in which a feed writes its status. deal: the work by which
    samples of a step are distributed over ranks; None: in stored order.
    """

    dataset: Dataset
    data: RunData
    seed: int
    endless: bool = False
    groups: Sequence[Sequence[str]] = ()
    output: Path | None = None
    deal: Deal | None = None

    @property
    def schema(self) -> DataSchema:
        """The columns of every sample."""
        return self.dataset.schema

    @property
    def length(self) -> int | None:
        """Samples of the dataset; None if they are not counted."""
        return self.dataset.num_samples

    def steps(self, sizes: BatchSizes, world: int, step: int = 0, state: State | None = None) -> int | None:
        """Steps of data.epochs; None if the number of samples is unknown.

        step: steps already done, on any number of ranks, after which the data is at `state`.
        """
        keep, position, epochs = self.data.last == "keep", _position(state), self.data.epochs
        if self.length is None:
            return None
        if position is not None:
            here = self._at(position).num_samples or 0
            made, left = sizes.epoch(step, max(here - position.used, 0), world)
            step, epochs = step + made + (keep and left > 0), epochs - position.epoch - 1
        return sizes.steps(self.length, epochs, world, keep=keep, step=step)

    def batches(self, rank: int, world: int, size: int, state: State | None) -> Iterator[tuple[Batch, State]]:
        """The batches of a rank, epoch after epoch; the state may be of another number of ranks or batch size.

        Raises:
            UsageError: the data has too few samples for one step, or the state is of another order.
            CorruptFile: the state is of other data.
        """
        position = self.checked(state)
        epoch = position.epoch if position else 0
        while self.endless or epoch < self.data.epochs:
            dataset = self._at(position)
            beginning = self.beginning(dataset, epoch)
            start, found = position or beginning, False
            with self.opened(dataset, start, rank, world, size) as batches:
                for batch in batches:
                    found = True
                    yield batch, encode(batches.position)
            if not found and start == beginning:
                raise _too_few(dataset, size, world)
            epoch, position = epoch + 1, None

    def notes(self, sizes: BatchSizes, world: int, state: State | None) -> list[str]:
        """Lines that say that samples are left out at the end of an epoch, and that data has grown since the state."""
        dataset = self._at(_position(state))
        notes = [f"data.train: {self.dataset.note}"] if self.dataset.note else []
        left = 0 if self.length is None else sizes.epoch(0, self.length, world)[1]
        if left and self.data.last == "drop":
            notes.append(
                f"{left:,} of {_samples(self.dataset)} fill no step of {counted(world, 'rank')} at the end of an "
                "epoch, and are left out; data.last: keep trains on them"
            )
        if dataset is not self.dataset:
            notes.append(
                f"data.train has {_samples(self.dataset)}, and had {_samples(dataset)} when this epoch began: it ends "
                "with those, and the next one takes all"
            )
        return notes

    def checked(self, state: State | None) -> Position | None:
        """The position in the data that a state stands for; None at the beginning of an epoch.

        Raises:
            UsageError: the state is of another order.
            CorruptFile: the state is of other data.
        """
        position = _position(state)
        if position is not None:
            dataset = self._at(position)
            dataset.check_position(position, self.beginning(dataset, position.epoch))
        return position

    def _at(self, position: Position | None) -> Dataset:
        """The dataset as it was when the epoch of a position began."""
        return self.dataset if position is None else self.dataset.at(position)

    def beginning(self, dataset: Dataset, epoch: int) -> Position:
        """The position at which an epoch of the dataset begins."""
        return Position(
            epoch=epoch, used=0, seed=self.seed, shuffle=self.data.shuffle, dataset=dataset.source.digest,
            together=self.data.keep_together, window=self.data.window,
        )  # fmt: skip

    def opened(self, dataset: Dataset, start: Position, rank: int, world: int, size: int) -> Batches | Feed:
        """The batches from a position to the end of its epoch."""
        if self.data.feed is not None:
            return self._fed(dataset, start, rank, world, size)
        return dataset.batches(
            rank=rank, world_size=world, batch_size=size, seed=start.seed, shuffle=start.shuffle, position=start,
            drop_last=self.data.last == "drop", together=start.together, window=start.window, deduplicate=self.groups,
            deal=self.deal,
        )  # fmt: skip

    def _fed(self, dataset: Dataset, start: Position, rank: int, world: int, size: int) -> Feed:
        """The same batches from a feed, whose workers open the data themselves, as it was at the start."""
        data, groups, source = self.data, tuple(map(tuple, self.groups)), dataset.source
        settings = FeedSettings(
            data=data.train, position=start, rank=rank, world_size=world, batch_size=size, groups=groups,
            samples=(source.first, source.last) if isinstance(source, SlicedSource) else None, deal=self.deal,
        )  # fmt: skip
        engine = engine_of(data.engine, settings, data.ray_address)
        status = self.output and status_file(self.output, rank)
        return Feed(settings, data.feed or "auto", drop_last=data.last == "drop", engine=engine, status=status)


def _position(state: State | None) -> Position | None:
    if state is None:
        return None
    if strange := sorted(state.keys() - {each.name for each in fields(Position)}):
        raise UsageError(
            f"the checkpoint is of a run that read its data in another way: its position has {', '.join(strange)}; "
            "give the settings of data as they were, or another output folder"
        )
    return decode(Position, state, "the position of the data")


def _samples(dataset: Dataset) -> str:
    known = dataset.num_samples
    return "more samples" if known is None else f"{known:,} samples"


def _too_few(dataset: Dataset, size: int, ranks: int) -> UsageError:
    known = dataset.num_samples
    return UsageError(
        f"data.train holds {'too few' if known is None else f'{known:,}'} samples, and a step takes {size * ranks:,} "
        f"({size:,} on each of {ranks} ranks); give a smaller data.batch_size, or more data"
    )
