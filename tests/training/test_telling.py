"""The record of a run: what stays of it when the disk is full, and when a run goes on."""

import json
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recsmith.training.telling import LOG, Diary


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """Within, the system refuses to make a file longer, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def steps_of(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / LOG).read_text().splitlines()]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes that a diary says."""
    notes: list[str] = []
    monkeypatch.setattr(Diary, "say", lambda _, words: notes.append(words["note"]))
    return notes


@pytest.mark.parametrize("room", [0, 10])  # for the next line: none, and a part of it
def test_a_full_disk_costs_lines_and_not_the_training(tmp_path: Path, said: list[str], room: int):
    diary = Diary(tmp_path, 0, tensorboard=False, step=0)
    diary.write("train", {"step": 1})
    with files_of_at_most((tmp_path / LOG).stat().st_size + room):
        diary.write("train", {"step": 2})
        diary.write("train", {"step": 3})
    diary.write("train", {"step": 4})
    assert steps_of(tmp_path) == [1, 4]
    assert len(said) == 1
    assert "cannot be written" in said[0]


def test_going_on_forgets_lines_after_the_checkpoint_and_half_written_ones(tmp_path: Path):
    diary = Diary(tmp_path, 0, tensorboard=False, step=0)
    for step in (1, 2, 3):
        diary.write("train", {"step": step})
    with (tmp_path / LOG).open("a") as file:
        file.write('{"event": "tra')
    Diary(tmp_path, 0, tensorboard=False, step=2)
    assert steps_of(tmp_path) == [1, 2]
