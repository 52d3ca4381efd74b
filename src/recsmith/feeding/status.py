"""The status of a run's feeds, in files that ranks write and other programs read: `RUN/feed/rank-00000.json`."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from recsmith._types import noun
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.feeding.buffer import Buffer
from recsmith.feeding.engines import WorkerThread
from recsmith.feeding.worker import FeedSettings
from recsmith.files import check_schema, decode, dump_json, encode, in_order, parse, read_text, replace_file

SCHEMA = "recsmith/feed-status/1"
FOLDER = "feed"
EVERY_S = 2.0  # seconds between two status files; trade-off: more often is more current, at one small file each
SILENT_S = 15.0  # seconds without a new status after which a rank counts as killed
RECENT_S = 10.0  # seconds over which throughput and waiting are averaged


@noun
class WorkerStatus:
    """The status of a worker. place: its machine and process id, '' until it runs.

    window: number of the window that it is making; None: it waits, since enough windows are made in advance. windows:
    number of windows that it has made. lag_s: seconds since the last part of its window arrived; 0 if it waits.
    """

    number: int
    place: str
    window: int | None
    windows: int
    lag_s: float


@noun
class FeedStatus:
    """The status of a rank's feed. written: time in seconds since 1970. process: machine and process id of the rank.

    epoch, used, num_samples: number of the epoch, samples of all ranks that are used, and samples in the epoch.
    samples: samples that this rank took in the `seconds` since the feed began. samples_per_s, waiting: over the last
    seconds, samples that the rank took per second, and the share of time that it waited for data. waited_s: seconds of
    waiting since the feed began. ahead: samples of this rank that are ready. windows: number of windows made. lost:
    number of workers that were replaced. ended: whether the feed was closed.
    """

    rank: int
    ranks: int
    process: str
    engine: str
    written: float
    epoch: int
    used: int
    num_samples: int
    samples: int
    seconds: float
    samples_per_s: float
    waiting: float
    waited_s: float
    ahead: int
    windows: int
    lost: int
    ended: bool
    workers: tuple[WorkerStatus, ...]

    def age_s(self, now: float | None = None) -> float:
        """Seconds since the status was written."""
        return max(0.0, (time.time() if now is None else now) - self.written)

    def is_silent(self, now: float | None = None) -> bool:
        """Whether the rank has not updated its status for too long, although the feed has not ended."""
        return not self.ended and self.age_s(now) > SILENT_S


def status_file(output: Path, rank: int) -> Path:
    """The path of a rank's status file in a run's folder."""
    return output / FOLDER / f"rank-{rank:05d}.json"


def write_status(path: Path, status: FeedStatus) -> None:
    """Write a status file atomically and create its folder; raises RecSmithError or OSError if writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, dump_json({"schema": SCHEMA, **encode(status)}).encode())


def read_statuses(output: Path) -> list[FeedStatus]:
    """The statuses of a run's feeds, one for each rank of the job that wrote last.

    Raises:
        UsageError: the run has no status files.
        CorruptFile: a file is invalid.
    """
    files = in_order((output / FOLDER).glob("rank-*.json"))
    if not files:
        raise UsageError(
            f"'{output}' has no {FOLDER}/rank-*.json, so no feed has run there; give the `output` folder of a run with "
            "data.feed: auto, or a number"
        )
    found = [_read(file) for file in files]
    ranks = max(found, key=lambda status: status.written).ranks
    return [status for status in found if status.rank < ranks]


def _read(file: Path) -> FeedStatus:
    source = str(file)
    status = decode(FeedStatus, check_schema(parse(read_text(source), source), SCHEMA, source), source)
    if not 0 <= status.rank < status.ranks:
        raise CorruptFile(f"'{source}' is of rank {status.rank} of {status.ranks}; ranks are 0 to {status.ranks - 1}")
    return status


class Recorder:
    """Writes the status of a buffer and its workers every EVERY_S seconds in a thread; disk errors are ignored."""

    def __init__(
        self, path: Path, settings: FeedSettings, num_samples: int, engine: str, buffer: Buffer,
        threads: Mapping[int, WorkerThread],
    ) -> None:  # fmt: skip
        self.path, self.settings, self.num_samples, self.engine = path, settings, num_samples, engine
        self.buffer, self.threads, self.begun = buffer, threads, time.monotonic()
        self.recent = deque([(self.begun, 0, 0.0)])  # (time, samples so far, seconds of waiting so far)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="recsmith-feed-status")
        self._thread.start()

    def close(self) -> None:
        """Write a last status, which says that the feed has ended."""
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
        """The current status of the feed."""
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
        """The oldest record within the last RECENT_S seconds; adds the current values to the records."""
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
