"""A lock on a folder, so that one process at a time writes to it; who has it clears what a killed one left."""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from recsmith.errors import UsageError

# Files that were being written: write_text adds 8 random characters to the name, a part gets a dot before it.
_LEFTOVER = re.compile(r"\.(?:(?:about|settings|alpha-beta)\.json\.[a-z0-9_]{8}|part-[0-9]{9,16}-[0-9]{9,16}\.parquet)")


@contextmanager
def lock_folder(path: Path) -> Generator[None]:
    """A folder for this process alone, made if need be; free again when the process ends, however it does.

    Raises:
        UsageError: another process has it, or it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"cannot write to '{path}': {error.strerror}; choose a folder you may write to") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_leftovers(path)
        yield
    except BlockingIOError:
        raise UsageError(f"another run writes to '{path}'; wait for it, or give another folder") from None
    finally:
        os.close(folder)


def _remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed while they wrote have left; the lock says that none writes now."""
    for entry in os.scandir(path):
        if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink()
