"""Reads the batches of one rank: a window's blocks are held as one batch, from which each step takes its samples."""

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from recsmith._types import Ints, record
from recsmith.data.batch import Batch, concatenated
from recsmith.data.dealing import Deal, dealt
from recsmith.data.deduplication import deduplicated, expanded
from recsmith.data.order import EpochOrder, Position, Stored
from recsmith.data.source import BlockSource, SampleBlock, by_rows, check_corrupt

AHEAD = 3  # batches that the reading thread prepares in advance
POLL_S = 0.2  # seconds between the reading thread's checks of whether it should stop


class HeldBlocks:
    """The blocks of a window that were read so far, joined into one.

    groups: features of which only distinct bags are held. Cost: each `add` copies all that is held, so all blocks that
    a step needs should be added in one call. Memory: twice the blocks, while they are joined.
    """

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = groups
        self._firsts: dict[int, int] = {}  # row of each block's first sample, by place
        self._block: SampleBlock | None = None

    def missing(self, places: Sequence[int]) -> list[int]:
        """Those of the given places whose blocks are not held yet."""
        return [place for place in places if place not in self._firsts]

    def add(self, blocks: dict[int, SampleBlock]) -> None:
        """Join more blocks, given by place, to those that are held."""
        held = [] if self._block is None else [self._block]
        first = sum(len(each.samples) for each in held)
        for place, block in blocks.items():
            self._firsts[place] = first
            first += len(block.samples)
            held.append(replace(block, samples=deduplicated(block.samples, self.groups, nearby=True)))
        self._block = _joined(held, self.groups)

    def rows(self, share: Sequence[tuple[int, Ints]]) -> Ints:
        """Rows of the joined block that hold the given rows of each place."""
        return np.concatenate([np.zeros(0, np.int64), *(self._firsts[place] + rows for place, rows in share)])

    @property
    def block(self) -> SampleBlock:
        """All held blocks as one."""
        assert self._block is not None  # something was added
        return self._block


def _joined(blocks: Sequence[SampleBlock], groups: Sequence[Sequence[str]]) -> SampleBlock:
    samples = deduplicated(concatenated([each.samples for each in blocks]), groups)
    first_corrupt = next((each.first_corrupt for each in blocks if each.corrupt), None)
    if first_corrupt is None:
        return SampleBlock(samples=samples)
    valid = [np.ones(len(each.samples), np.bool_) if each.valid is None else each.valid for each in blocks]
    return SampleBlock(samples=samples, valid=np.concatenate(valid), first_corrupt=first_corrupt)


@record
class Counts:
    """What a rank has read in the epoch so far: the samples in its batches, and corrupt samples that it skipped."""

    samples: int = 0
    corrupt: int = 0


class BatchReader:
    """Makes the batches of one rank, one step after the other; keeps the blocks of the windows in use.

    deal: how to balance the ranks' work in a step; None: samples are split by where they are stored. With `deal`, if
    the source reads whole blocks only, every rank reads and keeps the blocks of all ranks.
    """

    def __init__(
        self, source: BlockSource, order: EpochOrder, position: Position, rank: int, world_size: int, batch_size: int,
        groups: Sequence[Sequence[str]] = (), deal: Deal | None = None,
    ) -> None:  # fmt: skip
        self.groups, self.deal = groups, deal
        self._rows = None if groups else by_rows(source)
        self.source, self.order, self.position = source, order, position
        self.rank, self.world_size, self.step = rank, world_size, world_size * batch_size
        self.counts = Counts()
        self._held: dict[int, HeldBlocks] = {}  # by window
        self._known: dict[int, Ints] = {}  # by place of a block: numbers of ids of the feature that `deal` names

    def steps(self, drop_last: bool) -> Generator[tuple[Batch, Position, Counts]]:
        """The batches, each with the position and the counts after it."""
        for first in range(self.position.used, self.order.num_samples, self.step):
            last = min(first + self.step, self.order.num_samples)
            if drop_last and last - first < self.step:
                return
            before = self.counts.corrupt
            batch = self.batch(first, last)
            batch = replace(batch, corrupt=self.counts.corrupt - before) if self.counts.corrupt > before else batch
            self.counts = replace(self.counts, samples=self.counts.samples + len(batch))
            yield batch, replace(self.position, used=last), self.counts

    def batch(self, first: int, last: int, window: int | None = None) -> Batch:
        """The rank's samples in slots first to last - 1, without corrupt ones. window: if given, only its samples."""
        windows = self.order.windows_of(first, last) if window is None else range(window, window + 1)
        self._held = {number: held for number, held in self._held.items() if number >= windows.start}
        begins = int(self.order.windows[windows.start])
        self._known = {place: lengths for place, lengths in self._known.items() if place >= begins}
        ranks_of = None if self.deal is None else self._dealt
        share = self.order.share(first, last, self.rank, self.world_size, ranks_of)
        parts = [part for number in windows if (part := self._of_window(number, share)) is not None]
        batch = concatenated(parts) if parts else deduplicated(self.source.schema.empty(), self.groups)
        return deduplicated(batch, self.groups) if len(parts) > 1 else batch  # several windows may hold equal rows

    def _of_window(self, window: int, share: Sequence[tuple[int, Ints]]) -> Batch | None:
        """The samples of the share that are in this window; None if there are none."""
        begin, end = (int(each) for each in self.order.windows[window : window + 2])
        own = [(place, rows) for place, rows in share if begin <= place < end]
        if not own:
            return None
        if self._rows is not None:
            found = [self._rows.rows(int(self.order.blocks[place]), rows) for place, rows in own]
            return concatenated([self._whole(each) for each in found])
        held = self._holding(window, [place for place, _ in own])
        return self._whole(held.block, held.rows(own))

    def _whole(self, block: SampleBlock, rows: Ints | None = None) -> Batch:
        """The block's samples, or these rows, without corrupt ones, which are counted."""
        if block.valid is None:
            return block.samples if rows is None else block.samples.take(rows)
        rows = np.arange(len(block.samples)) if rows is None else rows
        whole = block.valid[rows]
        self.counts = replace(self.counts, corrupt=self.counts.corrupt + int(len(rows) - whole.sum()))
        check_corrupt(self.counts.corrupt, self.source, block.first_corrupt)
        return block.samples.take(rows[whole])

    def _holding(self, window: int, places: Sequence[int]) -> HeldBlocks:
        """The held blocks of a window, after reading those of the given places that are missing."""
        held = self._held.setdefault(window, HeldBlocks(self.groups))
        missing = held.missing(places)
        if missing:
            held.add({place: self.source.read(int(self.order.blocks[place])) for place in missing})
        return held

    def _dealt(self, stored: Sequence[Stored]) -> Ints:
        """The rank of each sample of a step."""
        assert self.deal is not None
        lengths = [self._lengths(place, self.deal.feature)[rows] for place, rows in stored]
        return dealt(self.deal.work(np.concatenate([np.zeros(0, np.int64), *lengths])), self.world_size)

    def _lengths(self, place: int, feature: str) -> Ints:
        """Number of ids of a feature in each sample of a block; cached by place."""
        if place not in self._known:
            self._known[place] = self._counted(place, feature)
        return self._known[place]

    def _counted(self, place: int, feature: str) -> Ints:
        if self._rows is not None:
            return self._rows.lengths(int(self.order.blocks[place]), feature)
        window = int(np.searchsorted(self.order.windows, place, side="right")) - 1
        held, every = self._holding(window, [place]), np.arange(int(self.order.sizes[place]))
        return expanded(held.block.samples.take(held.rows([(place, every)]))).ids[feature].lengths.astype(np.int64)


class Batches(Iterator[Batch]):
    """The batches of a rank in one epoch: an iterator that reads ahead in a thread.

    position: how far the job is after the batch that was returned last; batches that were only read ahead do not count.
    counts: samples returned, and corrupt ones skipped, by this rank. The thread ends after the last batch, or at
    `close`.
    """

    def __init__(self, reader: BatchReader, drop_last: bool) -> None:
        self.position, self.counts = reader.position, reader.counts
        self._queue: queue.Queue[tuple[Batch, Position, Counts] | BaseException | None] = queue.Queue(AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_read_ahead, args=(reader, drop_last, self._queue, self._stop), daemon=True, name="recsmith-data"
        )
        self._thread.start()
        self._over = False

    def __next__(self) -> Batch:
        """The next batch; an error of the reading thread is raised here."""
        if self._over:
            raise StopIteration
        found = self._queue.get()
        if isinstance(found, tuple):
            batch, self.position, self.counts = found
            return batch
        self.close()
        if found is None:
            raise StopIteration
        raise found

    def close(self) -> None:
        """End the reading thread; the position stays as it is."""
        self._over = True
        self._stop.set()

    def __enter__(self) -> Self:
        """The iterator itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the reading thread."""
        self.close()

    def __del__(self) -> None:
        """End the reading thread if the iterator was not closed."""
        self._stop.set()


def _read_ahead(reader: BatchReader, drop_last: bool, ready: "queue.Queue[object]", stop: threading.Event) -> None:
    """Fill the queue with batches, then with None or the error that ended them, until `stop` is set."""
    try:
        for found in reader.steps(drop_last):
            if not _put(ready, found, stop):
                return
        _put(ready, None, stop)
    except BaseException as error:
        _put(ready, error, stop)


def _put(ready: "queue.Queue[object]", item: object, stop: threading.Event) -> bool:
    """Put an item into the queue as soon as there is room; False if `stop` was set before."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=POLL_S)
        except queue.Full:
            continue
        return True
    return False
