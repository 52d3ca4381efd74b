"""Folders of local jobs, in the folder for temporary files: one job owns each, and none outlives its owner for long.

A job locks its folder while it runs, and the system frees the lock when the process ends, however it does. Whoever
starts the next job removes the folders that nobody has locked: numbers of processes come again, locks do not.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "recsmith-job-"
UNLOCKED_S = 60.0  # for which a folder that nobody has locked stays: it may have been made this moment


@contextmanager
def job_folder() -> Generator[Path]:
    """A folder of this job's own, gone when the block ends; folders whose jobs were killed are removed first."""
    remove_left_folders(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        handle = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(handle)


def remove_left_folders(place: Path) -> None:
    """Remove this user's folders of jobs that have ended without doing so."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or gone
            continue
        try:
            found = os.fstat(handle)
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > UNLOCKED_S:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its job runs
            pass
        finally:
            os.close(handle)
