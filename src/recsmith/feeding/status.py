"""How the feeds of a run do, as files that ranks write and anybody reads: `RUN/feed/rank-00000.json`."""

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
EVERY_S = 2.0  # between two writings; trade-off: more often shows more, and costs a small file each
SILENT_S = 15.0  # without a writing, after which the rank is taken for ended by force
RECENT_S = 10.0  # over which throughput and waiting are told


@noun
class WorkerStatus:
    """A worker of a feed. place: its machine and process id, '' until it runs.

    window: that it makes; None: it waits for one, since enough is made ahead. windows: that it has made. lag_s: seconds
    since a part of its window last came from it; 0 where it waits.
    """

    number: int
    place: str
    window: int | None
    windows: int
    lag_s: float


@noun
class FeedStatus:
    """The feed of a rank at a moment. written: seconds since 1970. process: machine and process id of the rank.

    epoch, used, num_samples: samples of all ranks, trained and in the epoch. samples: of this rank in the `seconds`
    since the feed began. samples_per_s, waiting: of the last seconds, what the rank took and the share of the time that
    it waited for data. waited_s: since the feed began. ahead: samples of this rank that are ready. windows: made.
    lost: workers that were replaced. ended: whether the feed was closed.
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
        """Seconds since it was written."""
        return max(0.0, (time.time() if now is None else now) - self.written)

    def is_silent(self, now: float | None = None) -> bool:
        """Whether the rank should have written since, and has not."""
        return not self.ended and self.age_s(now) > SILENT_S


def status_file(output: Path, rank: int) -> Path:
    """The file of a rank in a run's folder."""
    return output / FOLDER / f"rank-{rank:05d}.json"


def write_status(path: Path, status: FeedStatus) -> None:
    """Write a file, whole or not at all; its folder is made. RecSmithError or OSError where the disk refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, dump_json({"schema": SCHEMA, **encode(status)}).encode())


def read_statuses(output: Path) -> list[FeedStatus]:
    """The feeds of a run, one for each rank of the job that wrote last.

    Raises:
        UsageError: there are none.
        CorruptFile: a file is not what it should be.
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
