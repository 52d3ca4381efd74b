"""A lock on a folder, so that one process at a time writes to it."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from recsmith.errors import UsageError


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
        yield
    except BlockingIOError:
        raise UsageError(f"another run writes to '{path}'; wait for it, or give another folder") from None
    finally:
        os.close(folder)
