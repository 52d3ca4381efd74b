"""The lock of a folder: one at a time, free again afterwards, and folders that cannot be made are named."""

from pathlib import Path

import pytest

from recsmith.errors import UsageError
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
