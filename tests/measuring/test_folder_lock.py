"""The lock of a folder: one at a time, free again afterwards, and folders that cannot be made are named."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.measuring.about import About
from recsmith.measuring.folder import open_folder
from recsmith.measuring.folder_lock import lock_folder


def test_one_at_a_time(tmp_path: Path):
    with lock_folder(tmp_path / "a" / "b"):
        with pytest.raises(UsageError, match="another run writes to"), lock_folder(tmp_path / "a" / "b"):
            pass
        with lock_folder(tmp_path / "a" / "c"):
            pass
    with lock_folder(tmp_path / "a" / "b"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write to '.*file'"), lock_folder(tmp_path / "file"):
        pass


def test_what_a_killed_run_left_is_cleared_and_nothing_else(tmp_path: Path):
    left = (".about.json.k3x_9abz", ".settings.json.abcdefgh", ".part-000000000-000000004.parquet")
    kept = ("about.json", ".about.json.mine", ".about.json.ABCDEFGH", ".other.json.abcdefgh", "part-1.parquet.abcdefgh")
    for name in (*left, *kept):
        (tmp_path / name).touch()
    (tmp_path / ".about.json.a_folder").mkdir()
    (tmp_path / ".about.json.a_link_x").symlink_to("about.json")
    with lock_folder(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {*kept, ".about.json.a_folder", ".about.json.a_link_x"}


def test_a_kill_inside_of_fsync_blocks_no_folder(tmp_path: Path):
    """The first thing that a run writes is about.json; a second run takes the folder all the same."""
    about = 'About(kind="comm", hardware="x", seed=0)'
    program = f"""
import os
from pathlib import Path
from recsmith.measuring.about import About
from recsmith.measuring.folder import open_folder
os.fsync = lambda _: os.kill(os.getpid(), 9)
open_folder(Path({str(tmp_path)!r}), {about}).__enter__()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == -signal.SIGKILL
    assert [path.name[:12] for path in tmp_path.iterdir()] == [".about.json."]
    with open_folder(tmp_path, About(kind="comm", hardware="x", seed=0)):
        assert [path.name for path in tmp_path.iterdir()] == ["about.json"]
