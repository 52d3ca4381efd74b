"""What a rank holds of a window: its blocks as one batch, of which each step takes its samples at once."""

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

AHEAD = 3  # batches that the thread has ready
POLL_S = 0.2  # seconds after which the thread looks whether it is still wanted


class HeldBlocks:
    """The blocks of a window that were read so far, joined.

    groups: features of which only distinct bags are held. Cost: blocks that come later copy all that is held, so give
    those that a step needs together. Memory: twice the blocks, while they are joined.
    """

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = groups
        self._firsts: dict[int, int] = {}  # row of each block's first sample, by place
        self._block: SampleBlock | None = None

    def missing(self, places: Sequence[int]) -> list[int]:
        """Which of these places of blocks are not held."""
        return [place for place in places if place not in self._firsts]

    def add(self, blocks: dict[int, SampleBlock]) -> None:
        """Hold more blocks, given by place."""
        held = [] if self._block is None else [self._block]
        first = sum(len(each.samples) for each in held)
        for place, block in blocks.items():
            self._firsts[place] = first
            first += len(block.samples)
            held.append(replace(block, samples=deduplicated(block.samples, self.groups, nearby=True)))
        self._block = _joined(held, self.groups)

    def rows(self, share: Sequence[tuple[int, Ints]]) -> Ints:
        """Rows of what is held, of rows in each place."""
        return np.concatenate([np.zeros(0, np.int64), *(self._firsts[place] + rows for place, rows in share)])

    @property
    def block(self) -> SampleBlock:
        """All that is held."""
        assert self._block is not None  # something was added
        return self._block


def _joined(blocks: Sequence[SampleBlock], groups: Sequence[Sequence[str]]) -> SampleBlock:
    samples = deduplicated(concatenated([each.samples for each in blocks]), groups)
    if all(each.valid is None for each in blocks):
        return SampleBlock(samples=samples)
    valid = [np.ones(len(each.samples), np.bool_) if each.valid is None else each.valid for each in blocks]
    first_corrupt = next(each.first_corrupt for each in blocks if each.valid is not None)
    return SampleBlock(samples=samples, valid=np.concatenate(valid), first_corrupt=first_corrupt)


@record
class Counts:
    """What a rank has read in its epoch so far: samples it was given, and corrupt ones that it passed over."""

    samples: int = 0
    corrupt: int = 0


class BatchReader:
    """Makes the batches of one rank, one step after the other; keeps the blocks of the windows in use.

    deal: by what work the samples of a step are dealt to ranks; None: as they are stored. Of sources that read whole
    blocks, every rank then reads and keeps those of all.
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
        self._known: dict[int, Ints] = {}  # by place of a block: ids of the feature that samples are dealt by

    def steps(self, drop_last: bool) -> Generator[tuple[Batch, Position, Counts]]:
        """Batches, each with the position and the counts after it."""
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
        """The rank's share of the samples in slots first to last - 1, without corrupt ones; of one window, if given."""
        windows = self.order.windows_of(first, last) if window is None else range(window, window + 1)
        self._held = {number: held for number, held in self._held.items() if number >= windows.start}
        begins = int(self.order.windows[windows.start])
        self._known = {place: lengths for place, lengths in self._known.items() if place >= begins}
        ranks_of = None if self.deal is None else self._dealt
        share = self.order.share(first, last, self.rank, self.world_size, ranks_of)
        parts = [part for number in windows if (part := self._of_window(number, share)) is not None]
        batch = concatenated(parts) if parts else deduplicated(self.source.schema.empty(), self.groups)
        return deduplicated(batch, self.groups) if len(parts) > 1 else batch  # rows that are in more than one window

    def _of_window(self, window: int, share: Sequence[tuple[int, Ints]]) -> Batch | None:
        """The samples of a window among those of some places; None for none."""
        begin, end = (int(each) for each in self.order.windows[window : window + 2])
        own = [(place, rows) for place, rows in share if begin <= place < end]
        if not own:
            return None
        if self._rows is not None:
            return concatenated([self._rows.rows(int(self.order.blocks[place]), rows).samples for place, rows in own])
        held = self._holding(window, [place for place, _ in own])
        rows, block = held.rows(own), held.block
        if block.valid is None:
            return block.samples.take(rows)
        whole = block.valid[rows]
        self.counts = replace(self.counts, corrupt=self.counts.corrupt + int(len(rows) - whole.sum()))
        check_corrupt(self.counts.corrupt, self.source, block.first_corrupt)
        return block.samples.take(rows[whole])

    def _holding(self, window: int, places: Sequence[int]) -> HeldBlocks:
        """What is held of a window, with the blocks of these places."""
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
        """Ids of a feature, of each sample of a block."""
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

    position: how far the world is after the batch that was given last; what was only read ahead is not used.
    counts: samples given and corrupt ones passed over, by this rank. `close` ends the thread, as the last batch does.
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
        """The next batch; what went wrong while it was read is raised here."""
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
        """End the thread; the position stays."""
        self._over = True
        self._stop.set()

    def __enter__(self) -> Self:
        """The iterator itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the thread."""
        self.close()

    def __del__(self) -> None:
        """End the thread of an iterator that nobody closed."""
        self._stop.set()


def _read_ahead(reader: BatchReader, drop_last: bool, ready: "queue.Queue[object]", stop: threading.Event) -> None:
    """Fill the queue with batches, then with None or with the error that ended them, as long as they are wanted."""
    try:
        for found in reader.steps(drop_last):
            if not _put(ready, found, stop):
                return
        _put(ready, None, stop)
    except BaseException as error:
        _put(ready, error, stop)


def _put(ready: "queue.Queue[object]", item: object, stop: threading.Event) -> bool:
    """Whether the item found a place before nobody wanted it any more."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=POLL_S)
        except queue.Full:
            continue
        return True
    return False
