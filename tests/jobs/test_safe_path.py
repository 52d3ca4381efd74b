"""Jobs and commands find modules where they are installed, not in the working folder, unless a module was named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import recsmith
from recsmith.jobs.launch import _environment  # pyright: ignore[reportPrivateUsage]
from recsmith.jobs.safe_path import places_of_modules


def test_our_own_jobs_leave_the_working_folder_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    here, other = str(tmp_path), str(tmp_path / "other")
    monkeypatch.setattr(sys, "path", ["", here, str(tmp_path / "link"), other, other])
    assert places_of_modules(own=True) == [other]
    assert places_of_modules(own=False) == [here, str(tmp_path / "link"), other]
    for function, places in (("recsmith.x:y", other), ("mine:y", os.pathsep.join(places_of_modules(own=False)))):
        words = _environment(1, own=function.startswith("recsmith."))
        assert (words["PYTHONPATH"], words["PYTHONSAFEPATH"]) == (places, "1")


def test_a_checkout_that_is_worked_in_is_still_found(monkeypatch: pytest.MonkeyPatch):
    home = Path(recsmith.__file__).parents[1]
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [str(home)])
    assert places_of_modules(own=True) == [str(home)]


def test_python_m_recsmith_imports_nothing_from_the_working_folder(tmp_path: Path):
    for name in ("click.py", "secrets.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit(7)\n")
    places = os.pathsep.join([str(Path(recsmith.__file__).parents[1]), *filter(None, sys.path)])
    command = [
        sys.executable,
        "-m",
        "recsmith",
        "plan",
        "criteo-kaggle",
        "--cluster",
        "h100:2",
        "--planner",
        "size_greedy",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
