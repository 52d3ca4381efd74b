"""Folders of jobs: a running job keeps its own, and those of jobs that were killed are removed at the next start."""

import os
import tempfile
from pathlib import Path

import pytest

from recsmith.jobs.folders import PREFIX, job_folder, remove_left_folders


def test_what_a_killed_job_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, young, other = tmp_path / f"{PREFIX}left", tmp_path / f"{PREFIX}young", tmp_path / "thesis"
    for folder in (left / "logs-0", young, other):
        folder.mkdir(parents=True)
        (folder / "rank-0.json").touch()
    linked = tmp_path / f"{PREFIX}link"
    linked.symlink_to(other)
    for folder in (left, other):
        os.utime(folder, (0, 0))
    with job_folder() as mine:
        assert sorted(tmp_path.iterdir()) == sorted([mine, young, other, linked])
    assert sorted(tmp_path.iterdir()) == sorted([young, other, linked])
    assert (other / "rank-0.json").exists()


def test_the_folder_of_a_job_that_runs_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with job_folder() as mine:
        os.utime(mine, (0, 0))
        remove_left_folders(tmp_path)
        assert mine.is_dir()
