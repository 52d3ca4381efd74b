"""Reads text files up to a size limit, and writes them whole or not at all."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn, cast

from recsmith.errors import CorruptFile, RecSmithError, UsageError

LARGEST_FILE = 512 * 2**20  # bytes, as a plan of 100,000 tables on 4,096 devices has; more is refused before it is read
STDIN = "-"


def read_text(source: str) -> str:
    """The text of a file, or of standard input for '-'; at most 512 MiB of UTF-8."""
    try:
        data = _read_stdin() if source == STDIN else _read_bytes(Path(source))
    except (OSError, ValueError) as error:  # ValueError: a path that holds a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read '{source}': {reason}; give the path of a readable file") from None
    if len(data) > LARGEST_FILE:
        raise CorruptFile(f"'{source}' is larger than 512 MiB; big workloads are JSON or CSV below that size")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{source}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _read_stdin() -> bytes:
    if cast(Any, sys.stdin) is None:
        raise UsageError("cannot read '-': standard input is closed; give a file instead")
    return sys.stdin.buffer.read(LARGEST_FILE + 1)


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_FILE + 1)


def write_text(target: str, text: str) -> None:
    """Write a whole file or nothing: a failed or interrupted write leaves an existing file as it was.

    A link stays a link: the file it leads to is replaced. Devices and pipes (/dev/null, >(gzip)) are written to.
    """
    if _is_stream(target):
        return _write_stream(target, text)
    path = _real_path(target)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        _refuse_target(target, error)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise _write_failure(target, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_stream(target: str, text: str) -> None:
    try:
        with Path(target).open("w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _write_failure(target, error) from None


def check_target(target: str | None) -> None:
    """Refuse an output path that cannot be written, before any work is done for it."""
    if target is None or target == STDIN:
        return
    if _is_stream(target):
        return
    path = _real_path(target)
    if path.is_dir():
        raise UsageError(f"cannot write '{target}': it is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{target}': folder '{path.parent}' does not exist; create it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write '{target}': permission denied; choose a folder you may write to")


def _is_stream(target: str) -> bool:
    """Whether the target exists and is neither a file nor a folder: a device, a pipe."""
    path = Path(target)
    return path.exists() and not path.is_file() and not path.is_dir()


def _real_path(target: str) -> Path:
    return Path(os.path.realpath(target))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse_target(target: str, error: OSError) -> NoReturn:
    raise UsageError(f"cannot write '{target}': {error.strerror}; choose a folder you may write to") from None


def _write_failure(target: str, error: OSError) -> RecSmithError:
    return RecSmithError(f"cannot write '{target}': {error.strerror}; any file that was there is unchanged")
