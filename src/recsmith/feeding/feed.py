"""A feed: the batches of a rank, in the order of a seed, made by processes of their own.

The batches are those that `Dataset.batches` gives, one for one: workers make windows ahead, and which samples a step
has follows from the order alone. So a worker that is lost costs time and no sample, and a position says all that a
restart must know.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self

import numpy as np

from recsmith._types import record
from recsmith.data import Batch, Counts
from recsmith.data.batch import concatenated
from recsmith.data.deduplication import deduplicated
from recsmith.errors import CorruptFile, RecSmithError
from recsmith.feeding.leases import Leases
from recsmith.feeding.parts import Part, part_of
from recsmith.feeding.settings import FeedSettings
from recsmith.feeding.worker import ERROR, WINDOW
from recsmith.files import dump_json, encode
from recsmith.jobs.messages import receive, send, words_of
from recsmith.jobs.piped import close_pipes, end_piped, pipe_of, start_piped

STALLED = 0.02  # share of the time that the trainer waited, above which a worker is added
CALM_WINDOWS = 4  # windows in a row without waiting, after which one is taken away
POLL_S = 0.2  # seconds after which a waiting thread looks whether it is still wanted


@record
class FeedFigures:
    """How a feed does. waited_s: that the trainer waited. made: windows; lost: workers that were replaced."""

    workers: int
    waited_s: float
    made: int
    lost: int


class Feed(Iterator[Batch]):
    """The batches of a rank in one epoch, from a position on; a context that ends its workers, however it ends.

    workers: how many; `auto`: as many as keep the trainer from waiting, up to the cores of this machine. Memory: at
    most one window more than there are workers is kept here, or all windows of a step where those are more, and one in
    each of them. position: how far the world is
    after the batch that was given last. counts: samples given, corrupt ones passed over.
    """

    def __init__(self, settings: FeedSettings, workers: int | Literal["auto"] = "auto", *, drop_last: bool = False):
        self.settings, self.position, self.counts, self.drop_last = settings, settings.position, Counts(), drop_last
        dataset = settings.open()
        self.schema, self.source, self.order = dataset.schema, dataset.source, dataset.order(settings.position)
        self.scaled, self.most = workers == "auto", os.cpu_count() or 1
        count = 1 if workers == "auto" else workers
        used, samples = settings.position.used, self.order.num_samples
        first = self.order.windows_of(used, used + 1)[0] if used < samples else len(self.order.windows) - 1
        self.leases = Leases(first, len(self.order.windows) - 1, count + 1)
        self.waited_s, self.made, self.lost = 0.0, 0, 0
        self._parts: dict[tuple[int, int], Part] = {}
        self._given = -1  # slot of the step that was given last
        self._changed = threading.Condition()
        self._problem: BaseException | None = None
        self._wanted = 0
        self._hands: dict[int, _Hand] = {}
        self._load = Load()
        self._closed = False
        self._scale_to(count)

    def __next__(self) -> Batch:
        """The next batch; what went wrong in a worker is raised here."""
        first = self.position.used
        last = min(first + self.settings.step, self.order.num_samples)
        if first >= last or (self.drop_last and last - first < self.settings.step):
            self.close()
            raise StopIteration
        windows = self.order.windows_of(first, last)
        parts = self._await(windows, first)
        batch = joined([part.samples for part in parts], self.settings.groups)
        corrupt = self.counts.corrupt + sum(part.corrupt for part in parts)
        if corrupt > self.source.max_corrupt:
            self.close()
            raise CorruptFile(
                f"{corrupt:,} samples are corrupt, more than max_corrupt: {self.source.max_corrupt:,} allows; "
                "`recsmith data check` says which"
            )
        self.counts = Counts(samples=self.counts.samples + len(batch), corrupt=corrupt)
        self.position = replace(self.position, used=last)
        return batch

    @property
    def figures(self) -> FeedFigures:
        """How the feed does so far."""
        return FeedFigures(workers=self._wanted, waited_s=self.waited_s, made=self.made, lost=self.lost)

    def close(self) -> None:
        """End the workers; the position stays."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for hand in self._hands.values():
            hand.end()

    def __enter__(self) -> Self:
        """The feed itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the workers."""
        self.close()

    def __del__(self) -> None:
        """End the workers of a feed that nobody closed."""
        with suppress(Exception):
            self.close()

    # --- what the trainer's thread does -----------------------------------------------------------------------------

    def _await(self, windows: range, first: int) -> list[Part]:
        """The parts of the step at a slot, one of each window, once all are there."""
        keys, begun = [(window, first) for window in windows], time.perf_counter()
        with self._changed:
            moved = self.leases.current != windows[0]
            self.leases.use(windows.start, windows.stop)
            self._changed.notify_all()
            while not all(key in self._parts for key in keys):
                if self._problem is not None:
                    problem = self._problem
                    break
                self._changed.wait(POLL_S)
            else:
                problem = None
                parts = [self._parts.pop(key) for key in keys]
                self._given = first
        if problem is not None:
            self.close()
            raise problem
        self.waited_s += time.perf_counter() - begun
        if moved and self.scaled:
            self._scale_to(self._load.workers(self._wanted, self.most, self.waited_s, time.perf_counter()))
        return parts

    def _scale_to(self, count: int) -> None:
        """So many workers; one that is too many ends once it has made its window."""
        with self._changed:
            self._wanted, self.leases.ahead = count, count + 1
            for number in range(count):
                if number not in self._hands:
                    self._hands[number] = _Hand(self, number)
            self._changed.notify_all()

    # --- what the thread of a worker asks -----------------------------------------------------------------------------

    def lease(self, number: int) -> int | None:
        """The next window of a worker, as soon as there is one; None where it is to end."""
        with self._changed:
            while not self._closed:
                if number >= self._wanted:
                    self._hands.pop(number, None)
                    return None
                window = self.leases.next_for(number)
                if window is not None:
                    return window
                self._changed.wait(POLL_S)
        return None

    def keep(self, part: Part) -> None:
        """A part has come. Those of steps that are given already come again when a worker was lost, and are dropped."""
        with self._changed:
            if part.first > self._given:
                self._parts[part.window, part.first] = part
                self._changed.notify_all()

    def complete(self, number: int) -> None:
        """A worker has made its window."""
        with self._changed:
            self.leases.complete(number)
            self.made += 1
            self._changed.notify_all()

    def mourn(self, number: int) -> bool:
        """A worker is gone; whether another one is to take its place."""
        with self._changed:
            if self._closed:
                return False
            self.lost += 1
            self.leases.lost(number)
            return True

    def fail(self, problem: BaseException) -> None:
        """Have the trainer hear of what went wrong."""
        with self._changed:
            self._problem = problem
            self._changed.notify_all()


class _Hand:
    """A worker process and the thread that asks it."""

    def __init__(self, feed: Feed, number: int) -> None:
        self.feed, self.number = feed, number
        self.words = dump_json(encode(feed.settings))
        self.process = self._start()
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"recsmith-feed-{number}")
        self.thread.start()

    def end(self) -> None:
        """End the process."""
        close_pipes(self.process)
        end_piped(self.process, at_once=True)

    def _start(self) -> subprocess.Popen[bytes]:
        return start_piped("recsmith.feeding.worker", self.words)

    def _run(self) -> None:
        try:
            while (window := self.feed.lease(self.number)) is not None:
                while not self._make(window):
                    if not self.feed.mourn(self.number):
                        return
                    self.end()
                    self.process = self._start()
                    again = self.feed.lease(self.number)
                    if again is None:
                        self.end()
                        return
                    window = again
                self.feed.complete(self.number)
            self.end()
        except BaseException as error:
            self.feed.fail(error)

    def _make(self, window: int) -> bool:
        """Hand the parts of a window on as they come; False where the worker was lost meanwhile."""
        feed = self.feed
        try:
            send(pipe_of(self.process.stdin), {WINDOW: np.array([window], np.int64)})
            while (arrays := receive(pipe_of(self.process.stdout))) is not None:
                if ERROR in arrays:
                    raise RecSmithError(words_of(arrays[ERROR]))
                if WINDOW in arrays:
                    return True
                feed.keep(part_of(arrays, feed.schema, feed.settings.groups))
        except (OSError, ValueError):
            return False  # its pipes are closed
        return False


class Load:
    """How many workers keep a trainer from waiting: one more where it waits, one fewer where none has waited long."""

    def __init__(self) -> None:
        self.waited_s, self.at, self.calm = 0.0, time.perf_counter(), 0

    def workers(self, count: int, most: int, waited_s: float, now: float) -> int:
        """How many there should be, of the window that was just used up."""
        share = (waited_s - self.waited_s) / max(now - self.at, 1e-9)
        self.waited_s, self.at = waited_s, now
        if share > STALLED:
            self.calm = 0
            return min(count + 1, most)
        self.calm += 1
        if self.calm >= CALM_WINDOWS and count > 1:
            self.calm = 0
            return count - 1
        return count


def joined(parts: list[Batch], groups: tuple[tuple[str, ...], ...]) -> Batch:
    """The samples of a step, of all its parts."""
    some = [part for part in parts if len(part)] or parts[:1]
    return some[0] if len(some) == 1 else deduplicated(concatenated(some), groups)
