"""A feed: the batches of a rank, made in the order of a seed by workers that run alongside the trainer.

The batches are exactly those of `Dataset.batches`: workers make windows in advance, and the samples of a step depend on
the order alone. So a lost worker costs time but no samples, and a position is all that a restart needs. buffer.py keeps
parts and windows; an engine (engines.py) runs the workers.
"""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from recsmith._types import record
from recsmith.data import Batch, Counts
from recsmith.data.batch import concatenated
from recsmith.data.deduplication import deduplicated
from recsmith.data.source import check_corrupt
from recsmith.feeding.buffer import Buffer, Leases
from recsmith.feeding.engines import Engine, LocalEngine, WorkerThread
from recsmith.feeding.status import Recorder
from recsmith.feeding.worker import FeedSettings, StepPart

STALLED = 0.02  # share of time that the trainer waits, above which workers are added
SPARE = 0.1  # share of the workers that must be idle, in addition to the one to be removed
CALM_ROUNDS = 4  # rounds with little waiting after which a worker may be removed


class WorkerScaling:
    """Decides how many workers keep the trainer from waiting: more if it waits, one fewer if several are idle.

    Decisions are made after rounds of as many windows as there are workers. The first round after a decision does not
    count, since workers take time to start.
    """

    def __init__(self) -> None:
        self.windows, self.rounds = 0, 0  # windows of this round; rounds since the last decision
        self.waited_s, self.at = 0.0, time.perf_counter()  # waited seconds and time at the beginning of the round
        self.calm_idle_s, self.calm_at = 0.0, self.at  # idle seconds and time at the beginning of the rounds that count

    def workers(self, count: int, most: int, waited_s: float, idle_s: float, now: float) -> int:
        """The number of workers to have after a finished window.

        count: number of workers now. most: largest number. waited_s: seconds that the trainer has waited since the
        start. idle_s: seconds that workers were idle since the start, summed over all. now: the time in seconds.
        """
        self.windows += 1
        if self.windows < count:
            return count
        waiting = (waited_s - self.waited_s) / max(now - self.at, 1e-9)
        self.windows, self.rounds, self.waited_s, self.at = 0, self.rounds + 1, waited_s, now
        if self.rounds == 1:
            self.calm_idle_s, self.calm_at = idle_s, now
        elif waiting > STALLED:
            self.rounds = 0
            return min(most, math.ceil(count / max(1 - waiting, 0.5)))  # at most twice as many
        elif self.rounds > CALM_ROUNDS:
            self.rounds = 0
            idle = (idle_s - self.calm_idle_s) / max(now - self.calm_at, 1e-9)
            return count - 1 if idle - 1 > SPARE * count and count > 1 else count
        return count


@record
class FeedFigures:
    """Statistics of a feed. waited_s: seconds that the trainer waited. made: windows. lost: workers replaced."""

    workers: int
    waited_s: float
    made: int
    lost: int


class Feed(Iterator[Batch]):
    """The batches of a rank in one epoch from a position on; a context manager, which ends the workers at its exit.

    workers: number of workers; `auto`: as many as keep the trainer from waiting, up to the engine's cores. engine: runs
    the workers; None: processes of this machine. status: a file to which the feed's status is written (status.py).
    position: how far the job is after the batch that was returned last. counts: samples returned, and corrupt ones
    skipped. Memory: this process keeps at most one window more than there are workers, or all windows of a step if
    these are more; each worker keeps one window.
    """

    def __init__(
        self, settings: FeedSettings, workers: int | Literal["auto"] = "auto", *, drop_last: bool = False,
        engine: Engine | None = None, status: Path | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.position, self.counts, self.drop_last = settings, settings.position, Counts(), drop_last
        dataset = settings.open()
        self.schema, self.source, self.order = dataset.schema, dataset.source, dataset.order(settings.position)
        self.scaled, count = workers == "auto", 1 if workers == "auto" else workers
        used, samples = settings.position.used, self.order.num_samples
        first = self.order.windows_of(used, used + 1)[0] if used < samples else len(self.order.windows) - 1
        self.buffer = Buffer(Leases(first, len(self.order.windows) - 1, count + 1), used)
        self.engine = engine or LocalEngine(settings)
        self.threads: dict[int, WorkerThread] = {}
        self._load, self._recorder = WorkerScaling(), None
        self._scale_to(count)
        if status is not None:
            self._recorder = Recorder(status, settings, samples, self.engine.name, self.buffer, self.threads)

    def __next__(self) -> Batch:
        """The next batch; an error in a worker is raised here."""
        first = self.position.used
        last = min(first + self.settings.step, self.order.num_samples)
        if first >= last or (self.drop_last and last - first < self.settings.step):
            self.close()
            raise StopIteration
        parts = self._taken(first, last)
        batch = joined([part.samples for part in parts], self.settings.groups)
        lost = sum(part.corrupt for part in parts)
        batch, corrupt = replace(batch, corrupt=lost) if lost else batch, self.counts.corrupt + lost
        if corrupt > self.source.max_corrupt:
            self.close()
        check_corrupt(corrupt, self.source, "`recsmith data check` says which")
        self.counts = Counts(samples=self.counts.samples + len(batch), corrupt=corrupt)
        self.position = replace(self.position, used=last)
        return batch

    @property
    def figures(self) -> FeedFigures:
        """Statistics of the feed so far."""
        buffer = self.buffer
        return FeedFigures(workers=buffer.wanted, waited_s=buffer.waited_s, made=buffer.made, lost=buffer.lost)

    def close(self) -> None:
        """End the workers; the position stays as it is."""
        self.buffer.close()
        threads = list(self.threads.values())
        for thread in threads:
            thread.end()
        for thread in threads:
            thread.join()
        self.engine.close()
        if self._recorder is not None:
            self._recorder.close()

    def __enter__(self) -> Self:
        """The feed itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the workers."""
        self.close()

    def __del__(self) -> None:
        """End the workers if the feed was not closed."""
        with suppress(Exception):
            self.close()

    def _taken(self, first: int, last: int) -> list[StepPart]:
        """The parts of a step; the number of workers may be changed when the first window of a step changes."""
        windows = self.order.windows_of(first, last)
        moved = self.buffer.leases.current != windows[0]
        try:
            parts = self.buffer.take(windows, first, last)
        except BaseException:
            self.close()
            raise
        if moved and self.scaled:
            buffer, now = self.buffer, time.perf_counter()
            self._scale_to(self._load.workers(buffer.wanted, self.engine.most, buffer.waited_s, buffer.idle_s, now))
        return parts

    def _scale_to(self, count: int) -> None:
        for number in self.buffer.want(count):
            self.threads[number] = WorkerThread(number, self.buffer, self.engine, self.schema, self.settings.groups)


def joined(parts: list[Batch], groups: tuple[tuple[str, ...], ...]) -> Batch:
    """The batch of a step, joined from all its parts."""
    some = [part for part in parts if len(part)] or parts[:1]
    return some[0] if len(some) == 1 else deduplicated(concatenated(some), groups)
