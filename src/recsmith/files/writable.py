"""Output folders of commands: checked before anything is read or trained, and written atomically."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from recsmith.errors import RecSmithError, UsageError
from recsmith.files.texts import refuse_target, shown_address

ADDRESS = "://"


def check_writable(folder: str | os.PathLike[str], what: str = "", cure: str = "give another output") -> None:
    """Raise UsageError if a folder cannot be created or written; this tries an unnamed file and leaves nothing behind.

    what: the key of a run that names the folder; '' if the command line does. cure: the advice in the error.
    """
    name = os.fspath(folder)
    if ADDRESS in name:
        named = f"{what or 'the output'} '{shown_address(name)}'"
        raise UsageError(f"{named} is an address, and what is written goes to a folder; {cure}")
    try:
        with tempfile.TemporaryFile(dir=_nearest(Path(name).absolute())):
            pass
    except OSError as error:
        if not what:
            refuse_target(name, error)
        raise UsageError(f"{what} '{name}' cannot be written: {error.strerror or error}; {cure}") from None


@contextmanager
def whole_folder(target: Path) -> Generator[Path]:
    """A temporary folder that replaces the target when the block is done, and is removed if the block fails.

    Raises:
        RecSmithError: the disk is full or refuses; an existing target is kept.
    """
    partial = target.absolute().with_name(f"{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        put_in_place(partial, target)
    except OSError as error:
        raise _refused(target, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def put_in_place(partial: Path, target: Path) -> None:
    """Rename a complete folder to the target; what was there before is removed after that.

    Raises:
        RecSmithError: the disk refuses; what was there before is there again, or the error says where it is.
    """
    old = target.absolute().with_name(f"{target.name}.old")
    try:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed here
            target.rename(old)
        partial.rename(target)
    except OSError as error:
        with suppress(OSError):
            old.rename(target)
        kept = "" if target.exists() or not old.exists() else f", and what it held is in '{old}'"
        raise _refused(target, error, kept) from None
    shutil.rmtree(old, ignore_errors=True)


def _refused(target: Path, error: OSError, kept: str = "") -> RecSmithError:
    return RecSmithError(f"cannot write '{target}': {error.strerror or error}{kept}; make room, or give another output")


def _nearest(path: Path) -> Path:
    """The folder itself, or its nearest existing parent."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise NotADirectoryError(None, "Not a directory")
    return path
