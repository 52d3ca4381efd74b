"""Iterators over the batches of a rank: read ahead by a thread, exact about what was used."""

import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from recsmith._types import Ints, record
from recsmith.data.batch import Batch, concatenated
from recsmith.data.deduplication import deduplicated
from recsmith.data.held import HeldBlocks
from recsmith.data.order import EpochOrder, Position
from recsmith.data.source import Block, BlockSource
from recsmith.errors import CorruptFile

AHEAD = 3  # batches that the thread has ready
POLL_S = 0.2  # seconds after which the thread looks whether it is still wanted


@record
class Counts:
    """What a rank has read in its epoch so far: samples it was given, and corrupt ones that it passed over."""

    samples: int = 0
    corrupt: int = 0


class BatchReader:
    """Makes the batches of one rank, one step after the other; keeps the blocks of the windows in use."""

    def __init__(
        self, source: BlockSource, order: EpochOrder, position: Position, rank: int, world_size: int, batch_size: int,
        groups: Sequence[Sequence[str]] = (),
    ) -> None:  # fmt: skip
        self.groups = groups
        self.source, self.order, self.position = source, order, position
        self.rank, self.world_size, self.step = rank, world_size, world_size * batch_size
        self.counts = Counts()
        self._held: dict[int, HeldBlocks] = {}  # by window

    def steps(self, drop_last: bool) -> Generator[tuple[Batch, Position, Counts]]:
        """Batches, each with the position and the counts after it."""
        for first in range(self.position.used, self.order.num_samples, self.step):
            last = min(first + self.step, self.order.num_samples)
            if drop_last and last - first < self.step:
                return
            batch = self.batch(first, last)
            self.counts = replace(self.counts, samples=self.counts.samples + len(batch))
            yield batch, replace(self.position, used=last), self.counts

    def batch(self, first: int, last: int, window: int | None = None) -> Batch:
        """The rank's share of the samples in slots first to last - 1, without corrupt ones; of one window, if given."""
        windows = self.order.windows_of(first, last) if window is None else range(window, window + 1)
        self._held = {number: held for number, held in self._held.items() if number >= windows.start}
        share = self.order.share(first, last, self.rank, self.world_size)
        parts = [part for number in windows if (part := self._of_window(number, share)) is not None]
        batch = concatenated(parts) if parts else deduplicated(self.source.schema.empty(), self.groups)
        return deduplicated(batch, self.groups) if len(parts) > 1 else batch  # rows that are in more than one window

    def _of_window(self, window: int, share: Sequence[tuple[int, Ints]]) -> Batch | None:
        """The samples of a window among those of some places; None for none."""
        begin, end = (int(each) for each in self.order.windows[window : window + 2])
        own = [(place, rows) for place, rows in share if begin <= place < end]
        if not own:
            return None
        held = self._held.setdefault(window, HeldBlocks(self.groups))
        missing = held.missing([place for place, _ in own])
        if missing:
            held.add({place: self.source.read(int(self.order.blocks[place])) for place in missing})
        rows, block = held.rows(own), held.block
        if block.valid is None:
            return block.samples.take(rows)
        whole = block.valid[rows]
        self._count_corrupt(int(len(rows) - whole.sum()), block)
        return block.samples.take(rows[whole])

    def _count_corrupt(self, number: int, block: Block) -> None:
        self.counts = replace(self.counts, corrupt=self.counts.corrupt + number)
        if self.counts.corrupt > self.source.max_corrupt:
            raise CorruptFile(
                f"{self.counts.corrupt:,} samples are corrupt, more than max_corrupt: {self.source.max_corrupt:,} "
                f"allows; {block.first_corrupt}"
            )


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
