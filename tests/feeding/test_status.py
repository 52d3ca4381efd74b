"""What a feed tells of itself while it is used."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from feeding.support import BATCH, STATUS, pid_of, settings

from recsmith.errors import CorruptFile, UsageError
from recsmith.feeding import Feed, read_statuses, status_file
from recsmith.feeding.status import SILENT_S, write_status


def eventually(look: Callable[[], bool]) -> bool:
    return any(look() or time.sleep(0.05) for _ in range(200))


def test_a_feed_tells_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.feeding.status.EVERY_S", 0.05)
    with Feed(settings(), workers=1, status=status_file(tmp_path, 1)) as feed:
        given = sum(len(next(feed)) for _ in range(3))
        assert eventually(lambda: (tmp_path / "feed").exists() and read_statuses(tmp_path)[0].windows == 2)
        found = read_statuses(tmp_path)[0]
        assert (found.rank, found.ranks, found.epoch, found.num_samples) == (1, 2, 1, 40_000)
        assert (found.samples, found.used) == (given, feed.position.used) == (3 * BATCH, 6 * BATCH)
        assert found.ahead == sum(len(part.samples) for part in feed.buffer.parts.values()) > BATCH
        assert [worker.window for worker in found.workers] == [None]
        assert found.workers[0].place.endswith(f":{pid_of(feed)}")
        assert not found.ended
        os.kill(pid_of(feed), signal.SIGSTOP)
        while feed.buffer.leases.held.get(0) is None:
            next(feed)
            time.sleep(0.02)  # for the thread that serves the worker
        stuck = feed.buffer.leases.held[0]
        assert eventually(lambda: read_statuses(tmp_path)[0].workers[0].lag_s > 0.3)
        assert read_statuses(tmp_path)[0].workers[0].window == stuck
        os.kill(pid_of(feed), signal.SIGCONT)
    assert read_statuses(tmp_path)[0].ended


def test_a_disk_that_refuses_does_not_stop_a_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.feeding.status.EVERY_S", 0.01)
    (tmp_path / "feed").write_text("no folder")
    with Feed(settings(), workers=1, status=status_file(tmp_path, 1)) as feed:
        assert sum(len(batch) for batch in feed) == 20_000


def test_ranks_of_an_earlier_and_wider_job_are_left_out(tmp_path: Path) -> None:
    for rank, words in ((0, {}), (1, {"written": 990.0}), (2, {"ranks": 3, "written": 10.0})):
        write_status(status_file(tmp_path, rank), replace(STATUS, rank=rank, **words))
    assert [status.rank for status in read_statuses(tmp_path)] == [0, 1]
    assert STATUS.is_silent(1000.0 + SILENT_S + 1)
    assert not STATUS.is_silent(1000.0 + SILENT_S - 1)
    assert not replace(STATUS, ended=True).is_silent(10**9)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no feed has run there"):
        read_statuses(tmp_path)
    write_status(status_file(tmp_path, 5), replace(STATUS, rank=5))
    with pytest.raises(CorruptFile, match="rank 5 of 2"):
        read_statuses(tmp_path)
    status_file(tmp_path, 5).write_text("{}")
    with pytest.raises(CorruptFile, match="schema"):
        read_statuses(tmp_path)
