"""Writes how a feed does into its run's folder every few seconds, in a thread of its own, until the feed is closed."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from recsmith.errors import RecSmithError
from recsmith.feeding.buffer import Buffer
from recsmith.feeding.settings import FeedSettings
from recsmith.feeding.status import EVERY_S, FeedStatus, WorkerStatus, write_status
from recsmith.feeding.threads import WorkerThread

RECENT_S = 10.0  # over which throughput and waiting are told


class Recorder:
    """Looks at a buffer and its workers, and writes what it sees. A disk that refuses changes nothing else."""

    def __init__(
        self, path: Path, settings: FeedSettings, num_samples: int, engine: str, buffer: Buffer,
        threads: Mapping[int, WorkerThread],
    ) -> None:  # fmt: skip
        self.path, self.settings, self.num_samples, self.engine = path, settings, num_samples, engine
        self.buffer, self.threads, self.begun = buffer, threads, time.monotonic()
        self.recent = deque([(self.begun, 0, 0.0)])  # when; samples and seconds of waiting until then
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="recsmith-feed-status")
        self._thread.start()

    def close(self) -> None:
        """Write a last time, that the feed has ended."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()

    def _run(self) -> None:
        while True:
            ended = self._ended.is_set()
            with suppress(RecSmithError, OSError):
                write_status(self.path, self.status(ended=ended))
            if ended:
                return
            self._ended.wait(EVERY_S)

    def status(self, *, ended: bool = False) -> FeedStatus:
        """How the feed does now."""
        buffer, settings = self.buffer, self.settings
        with buffer.changed:
            now, samples, waited_s = time.monotonic(), buffer.samples, buffer.waited_s
            then, samples_then, waited_then = self._since(now, samples, waited_s)
            seconds = max(now - then, 1e-9)
            return FeedStatus(
                rank=settings.rank, ranks=settings.world_size, process=f"{socket.gethostname()}:{os.getpid()}",
                engine=self.engine, written=time.time(), epoch=settings.position.epoch, used=buffer.used,
                num_samples=self.num_samples, samples=samples, seconds=now - self.begun,
                samples_per_s=(samples - samples_then) / seconds, waiting=min(1.0, (waited_s - waited_then) / seconds),
                waited_s=waited_s, ahead=sum(len(part.samples) for part in buffer.parts.values()),
                windows=buffer.made, lost=buffer.lost, ended=ended, workers=self._workers(now),
            )  # fmt: skip

    def _since(self, now: float, samples: int, waited_s: float) -> tuple[float, int, float]:
        """The oldest look that is recent enough; keeps this one."""
        while len(self.recent) > 1 and now - self.recent[0][0] > RECENT_S:
            self.recent.popleft()
        self.recent.append((now, samples, waited_s))
        return self.recent[0]

    def _workers(self, now: float) -> tuple[WorkerStatus, ...]:
        held = self.buffer.leases.held
        return tuple(
            WorkerStatus(
                number=number, place=self.threads[number].worker.place, window=held.get(number),
                windows=account.windows, lag_s=now - account.heard if number in held else 0.0,
            )
            for number, account in sorted(self.buffer.accounts.items())
            if number in self.threads
        )  # fmt: skip
