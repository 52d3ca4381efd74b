"""Messages of a job while it runs: each once, in order, from rank 0 alone."""

from pathlib import Path

import pytest

from recsmith.jobs.log import LOG_FILE, JobLog, write_message


def test_each_message_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "log.jsonl"
    log = JobLog(file)
    assert log.new_messages() == []  # nothing is there yet
    monkeypatch.setenv(LOG_FILE, str(file))
    monkeypatch.setenv("RANK", "0")
    write_message(1)
    write_message({"städte": [2]})
    assert log.new_messages() == [1, {"städte": [2]}]
    monkeypatch.setenv("RANK", "1")
    write_message(3)
    assert log.new_messages() == []


def test_a_message_that_is_half_written_waits(tmp_path: Path):
    file = tmp_path / "log.jsonl"
    log = JobLog(file)
    file.write_text("1\n2")
    assert log.new_messages() == [1]
    file.write_text("1\n22\n")
    assert log.new_messages() == [22]
