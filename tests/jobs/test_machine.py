"""What Linux reports of this machine, and what is said where it reports nothing."""

import os
from pathlib import Path

import pytest

from recsmith.jobs.machine import describe_cpu, free_bytes, free_cores


def test_this_machine_is_described():
    assert f"{os.cpu_count()} cores, last cache " in describe_cpu()
    assert 1 <= free_cores() <= (os.cpu_count() or 1)
    assert (free_bytes() or 0) > 2**20


def test_what_linux_does_not_say_is_unknown(monkeypatch: pytest.MonkeyPatch):
    def unreadable(path: Path) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert describe_cpu() == f"unknown processor, {os.cpu_count()} cores, last cache unknown"
    assert free_bytes() is None


def test_sizes_are_read_in_kibibytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "read_text", lambda path: "MemTotal: 9 kB\nMemAvailable:   3 kB\n")
    assert free_bytes() == 3072
