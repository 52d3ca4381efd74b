"""Checks output files before any work: never an input file, and no file of another kind unless forced."""

import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from recsmith.errors import UsageError
from recsmith.files.texts import HERE, STDIN, AnyPath, is_address, is_stream, path_of, refuse_target

HEAD = 2**16  # bytes of an existing file that are searched for its kind: comments may precede the first key
MODEL = "neural:"  # prefix of the path of a learned cost model


def check_target(
    target: str | None, *, inputs: Iterable[str | None] = (), kind: bytes = b"", force: bool = False
) -> None:
    """Refuse an output path that cannot or should not be written, before any work is done for it.

    Args:
        target: the output path; None, standard output, devices and pipes are accepted.
        inputs: files, folders and cost models `neural:<file>` that the command reads; other names are ignored.
        kind: a regular expression that matches the beginning of all files of the written kind (`starts_with_schema`).
        force: whether a file of another kind may be overwritten; an input never is.

    Raises:
        UsageError: the path breaks one of these rules.
    """
    if target is None:
        return
    if target == STDIN or is_stream(target):
        return
    if is_address(target):
        _check_object(target, path_of(target), inputs, kind, force)
        return
    try:
        path = Path(os.path.realpath(target.removeprefix(HERE)))
        _check_place(target, path)
        _check_inputs(target, path, inputs)
        _check_kind(target, path, kind, force)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write '{target}': {reason}; give another path") from None


@contextmanager
def locked_folder(path: Path) -> Generator[None]:
    """Lock a folder, created if missing, for this process; the lock ends with the block or the process.

    If the block fails, a folder that was created here and contains no file is removed again.

    Raises:
        UsageError: another process has locked it, or it cannot be created.
    """
    was_there = path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY)
    except OSError as error:
        refuse_target(str(path), error)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(folder)
        if isinstance(error, BlockingIOError):
            raise UsageError(f"another run writes to '{path}'; wait for it, or give another folder") from None
        refuse_target(str(path), error)  # a file system without locks
    try:
        yield
    except BaseException:
        within = list(path.rglob("*"))
        if path.is_dir() and not was_there and all(each.is_dir() for each in within):
            for each in [*reversed(within), path]:  # inner folders first
                each.rmdir()
        raise
    finally:
        os.close(folder)


def starts_with_schema(schema: str) -> bytes:
    """Regular expression for the beginning of a file of a schema, of any version: the key `schema`, after comments."""
    family = re.escape(schema.rpartition("/")[0])
    return rb"""(?:\xef\xbb\xbf|\s|#[^\n]*\n|---)*+\{?\s*["']?schema["']?\s*:\s*["']?""" + family.encode() + b"/"


def _check_place(target: str, path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"cannot write '{target}': it is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{target}': folder '{path.parent}' does not exist; create it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        refuse_target(target, error)


def _check_object(target: str, path: AnyPath, inputs: Iterable[str | None], kind: bytes, force: bool) -> None:
    """Refuse to overwrite an object of a store that is an input, or that is of another kind."""
    if any(each is not None and is_address(each) and str(path_of(each)) == str(path) for each in inputs):
        raise UsageError(f"cannot write '{path}': this command reads it ('{target}'); give another address")
    if kind and not force:
        _check_kind(target, path, kind, force)


def _check_inputs(target: str, path: Path, inputs: Iterable[str | None]) -> None:
    """Refuse a target that is one of the inputs, also under another name, through a link, or as standard input."""
    if not path.exists():
        return
    for name in filter(None, inputs):
        if any(_are_same(path, each) for each in _files_of(name)):
            raise UsageError(f"cannot write '{target}': this command reads it ('{name}'); give another path")


def _files_of(argument: str) -> Iterator[Path | int]:
    """The files, or the file descriptor, that an argument of the command line names."""
    if argument == STDIN:
        yield 0
        return
    path = Path(argument.removeprefix(MODEL).removeprefix(HERE))
    yield path
    if is_folder(path):
        yield from path.iterdir()


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; False for an impossible path."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _are_same(path: Path, other: Path | int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(other) if isinstance(other, int) else other.stat())
    except (OSError, ValueError):  # the name is no file, or standard input is closed
        return False


def _check_kind(target: str, path: AnyPath, kind: bytes, force: bool) -> None:
    """Refuse to overwrite a file that is not empty and does not begin like files of the kind."""
    if force or not kind or not path.exists():
        return
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head and not re.match(kind, head, re.DOTALL):
        raise UsageError(
            f"cannot write '{target}': a file of another kind is there and would be lost; give another path, or --force"
        )
