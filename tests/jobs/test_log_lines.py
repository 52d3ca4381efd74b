"""What log.jsonl says: half-written and damaged lines are left out, whoever reads it; what is no file is refused."""

import json
import os
from pathlib import Path

import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import lines
from recsmith.jobs.log_lines import LOG, logged, logged_number
from recsmith.training.results.watched import slow_trainer_of_run

WHOLE = [{"event": "train", "step": step, "ne": 0.9} for step in range(1, 5)]
DAMAGED = [
    b"\xff\xfe\x00", b"[]", b"7", b"null", b'{"event": "train"', b'{"event": 5}', b'{"step": 2}', b"[" * 100_000,
    b'{"event": "train", "step": "2"}', b'{"event": "train", "step": 1e400}', b'{"event": "train", "step": null}',
]  # fmt: skip


def write(folder: Path, *more: bytes) -> Path:
    whole = [json.dumps(each).encode() for each in WHOLE]
    (folder / LOG).write_bytes(b"".join(line + b"\n" for line in [*whole[:2], *more, *whole[2:]]))
    return folder / LOG


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_left_out(tmp_path: Path, line: bytes) -> None:
    file = write(tmp_path, line)
    assert logged(file, "train") == WHOLE
    assert logged(file, "train", until=2) == WHOLE[:2]
    assert slow_trainer_of_run(str(tmp_path)) is None


def test_a_line_without_an_end_is_left_out_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    assert logged(write(tmp_path, b"x" * 950), "train") == WHOLE
    assert logged(write(tmp_path, b"x" * 99, b"x" * 100, b"x" * 199), "train") == WHOLE


@pytest.mark.parametrize("value", ["a", None, True, float("nan"), float("inf"), [1], 10**400])
def test_a_number_that_is_none_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(
        CorruptFile, match=r"'cpu_s' of a line 'trained' is .*, and it is a number; the line is damaged"
    ):
        logged_number(tmp_path, {"event": "trained", "cpu_s": value}, "cpu_s")


def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOG)
    with pytest.raises(UsageError, match="it is a pipe; data lies in files"):
        logged(tmp_path / LOG)
