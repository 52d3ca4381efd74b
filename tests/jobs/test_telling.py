"""What a job tells while it runs: each word once, in order, from rank 0 alone."""

from pathlib import Path

import pytest

from recsmith.jobs.telling import TOLD, Listener, tell


def test_each_word_is_heard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "told"
    listener = Listener(file)
    assert listener.news() == []  # nothing is there yet
    monkeypatch.setenv(TOLD, str(file))
    monkeypatch.setenv("RANK", "0")
    tell(1)
    tell({"städte": [2]})
    assert listener.news() == [1, {"städte": [2]}]
    monkeypatch.setenv("RANK", "1")
    tell(3)
    assert listener.news() == []


def test_a_word_that_is_half_written_waits(tmp_path: Path):
    file = tmp_path / "told"
    listener = Listener(file)
    file.write_text("1\n2")
    assert listener.news() == [1]
    file.write_text("1\n22\n")
    assert listener.news() == [22]
