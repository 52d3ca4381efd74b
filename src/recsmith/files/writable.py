"""Folders that a command is about to write to, asked before anything is read or trained."""

import os
import tempfile
from pathlib import Path

from recsmith.errors import UsageError

ADDRESS = "://"


def check_writable(folder: str | os.PathLike[str], what: str, cure: str) -> None:
    """UsageError where a folder cannot be made or written to. A file without a name is tried; nothing is left.

    what: the key of the folder, for the error. cure: what to do.
    """
    name = os.fspath(folder)
    if ADDRESS in name:
        raise UsageError(f"{what} '{name}' is an address, and what is written goes to a folder; {cure}")
    try:
        with tempfile.TemporaryFile(dir=_nearest(Path(name).absolute())):
            pass
    except OSError as error:
        raise UsageError(f"{what} '{name}' cannot be written: {error.strerror or error}; {cure}") from None


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above that is there."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise NotADirectoryError(None, "Not a directory")
    return path
