"""Reads text files up to a size limit, writes files atomically, and interprets the names and paths that users give."""

import os
import re
import select
import stat
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from recsmith._types import Source
from recsmith.errors import CorruptFile, RecSmithError, UsageError

LARGEST_FILE = 512 * 2**20  # bytes: a plan of 100,000 tables on 4,096 devices; larger files are refused unread
STDIN = "-"
PATIENCE_S = 60.0  # seconds without a byte until a pipe is given up: long for slow writers, short for forgotten pipes
BLOCK = 2**20  # bytes read at once
STORES = ("s3", "gs", "hdfs")  # schemes of stores whose addresses are read and written (remote/)
HERE = "file://"  # prefix of a path of this machine
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://?")  # Path collapses '//' into '/'
_SECRETS = re.compile(r"(:/{1,2})(?:[^/@]*:[^@]*|[^/@]+)@|[?].*")  # in an address; secrets of S3 may contain '/'
_NUMBER = re.compile(r"([0-9]+)")
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}  # by first bytes


# A path of this machine or a RemotePath of a store (remote/paths.py, imported when an address is named).
AnyPath = Path | Any
Ordered = TypeVar("Ordered", bound=AnyPath)


class Given(str):
    """A text with a name for messages; readers use the text and look for no file or built-in of that name."""

    __slots__ = ("text",)
    text: str

    @classmethod
    def of(cls, name: str, text: str) -> "Given":
        """A text with a name, whose ending gives the format, like that of a file."""
        made = cls(name)
        made.text = text
        return made


def source_text(source: object, wanted: str) -> str:
    """The text of a name or path; UsageError for any other object.

    wanted: the other objects that are accepted, for the error, such as 'a Workload'.
    """
    text: object = os.fspath(cast(Source, source)) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        kind = type(cast(object, source)).__name__
        hint = "; give its .plan" if kind == "Result" else ""
        raise UsageError(f"a {kind} is neither {wanted} nor a name or path{hint}")
    return text


def read_text(source: str) -> str:
    """The text of a file, or of standard input for '-'; at most 512 MiB of UTF-8.

    Raises:
        UsageError: it cannot be read: it does not exist, is a folder or a device, or is a pipe that stays silent.
        CorruptFile: it is larger, compressed, or not UTF-8.
    """
    if isinstance(source, Given):
        return source.text
    data = _read_stdin() if source == STDIN else read_bytes(source)
    _check_size(len(data), source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        packing = next((name for start, name in PACKED.items() if data.startswith(start)), None)
        if packing:
            raise CorruptFile(f"'{source}' is packed by {packing}, and text is wanted; unpack it") from None
        raise CorruptFile(f"'{source}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_bytes(source: str | Path) -> bytes | bytearray:
    """The bytes of a file, a pipe or an object of a store, at most 512 MiB; raises as read_text does."""
    if not isinstance(path := path_of(source), Path):
        return path.read_bytes()
    source = str(path) if str(source).startswith(HERE) else source
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK)  # O_NONBLOCK: opening a pipe would wait for a writer
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        _refuse_source(source, error)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode):
            _check_size(found.st_size, source)
            return _read_all(handle, source)
        if stat.S_ISFIFO(found.st_mode) or os.isatty(handle):
            return _read_all(handle, source)
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device"
        raise UsageError(f"cannot read '{source}': it is {kind}; give the path of a readable file")
    except OSError as error:
        _refuse_source(source, error)
    finally:
        os.close(handle)


def _read_all(handle: int, source: str | Path) -> bytearray:
    """The bytes of a file or pipe, up to one block more than is allowed; UsageError if a pipe stays silent."""
    data, poll = bytearray(), select.poll()
    poll.register(handle, select.POLLIN)
    while len(data) <= LARGEST_FILE:
        if not poll.poll(PATIENCE_S * 1000):
            raise UsageError(
                f"cannot read '{source}': nothing came through this pipe for {PATIENCE_S:g} s; give a file, or '-'"
            )
        block = os.read(handle, BLOCK)
        if not block:
            break
        data += block
    return data


def _read_stdin() -> bytes:
    if cast(Any, sys.stdin) is None:
        raise UsageError("cannot read '-': standard input is closed; give a file instead")
    try:
        return sys.stdin.buffer.read(LARGEST_FILE + 1)
    except OSError as error:
        _refuse_source(STDIN, error)


def _check_size(size: int, source: str | Path) -> None:
    if size > LARGEST_FILE:
        raise CorruptFile(f"'{source}' is larger than 512 MiB; big workloads are JSON or CSV below that size")


def _refuse_source(source: str | Path, error: OSError | ValueError) -> NoReturn:
    check_is_no_address(source)
    reason = getattr(error, "strerror", None) or error
    raise UsageError(f"cannot read '{source}': {reason}; give the path of a readable file") from None


def is_address(source: object) -> bool:
    """Whether a text is an address in a supported store, such as s3://bucket/clicks."""
    found = _ADDRESS.match(str(source))
    return found is not None and found[1] in STORES and found[0].endswith("://")


def shown_address(source: object) -> str:
    """An address with possible passwords and keys replaced by ***."""
    return _SECRETS.sub(lambda found: f"{found[1]}***@" if found[1] else "?***", str(source))


def path_of(source: str | Path) -> AnyPath:
    """The path that a text names: a path of this machine, or a file or folder in a store.

    Raises:
        UsageError: it is an address without a bucket, or with credentials in it.
        MissingExtra: it is the address of a store, and pyarrow is not installed.
    """
    if is_address(source):
        return import_module("recsmith.files.remote.paths").remote_path(str(source))
    return Path(str(source).removeprefix(HERE))


def check_is_no_address(source: AnyPath | str) -> None:
    """Refuse an address, such as https://host/clicks, in place of a path, unless a file of that name exists."""
    found = _ADDRESS.match(str(source))
    if found and not Path(str(source)).exists():
        known = ", ".join(f"{each}://" for each in STORES)
        cure = "what is named here is read from files alone" if found[1] in STORES else f"data and plans may be {known}"
        raise UsageError(
            f"'{shown_address(source)}' is an address of '{found[1]}', and {cure}; copy it, and give the path"
        )


def is_regular_file(path: Path) -> bool:
    """Whether a path is a regular file, not a folder, pipe or device; False for an impossible path."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_is_file(path: AnyPath) -> None:
    """Refuse a path that is no file with random access: missing, a folder, or a pipe, device or socket.

    Raises:
        UsageError: there is no such file, or it is a folder, a pipe, a device or a socket.
    """
    if not isinstance(path, Path):
        path.stat()
        return
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        check_is_no_address(path)
        raise UsageError(f"cannot read '{path}': there is no such file; give the path of a file or folder") from None
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or a socket"
        raise UsageError(f"cannot read '{path}': it is {kind}; data lies in files, so move it away or name files")


def write_text(target: str, text: str) -> None:
    """Write a file atomically: a failed or interrupted write leaves an existing file unchanged.

    A link is kept, and the file that it points to is replaced. Devices and pipes (/dev/null, >(gzip)) are written
    directly. At an address of a store, an object is written.
    """
    if not isinstance(remote := path_of(target), Path):
        remote.write_bytes(text.encode("utf-8"))
        return
    target = str(remote) if target.startswith(HERE) else target
    if is_stream(target):
        _write_stream(target, text)
        return
    _replace(target, text.encode("utf-8"))


def replace_file(path: Path, data: bytes) -> None:
    """Write bytes to a file atomically, as `write_text` does."""
    _replace(os.path.realpath(path), data)


def _replace(target: str, data: bytes) -> None:
    """Replace a file by bytes through a temporary file in its folder; a new file gets the mode of the umask."""
    try:
        path = Path(os.path.realpath(target))
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        refuse_target(target, error)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
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


def is_stream(target: str) -> bool:
    """Whether the target exists and is neither a file nor a folder, such as a device or a pipe."""
    try:
        mode = Path(target).stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refuse_target(target: str, error: OSError | ValueError) -> NoReturn:
    """Raise UsageError for a target that the system refuses to write."""
    reason = getattr(error, "strerror", None) or error
    raise UsageError(f"cannot write '{target}': {reason}; choose a folder you may write to") from None


def _write_failure(target: str, error: OSError) -> RecSmithError:
    return RecSmithError(f"cannot write '{target}': {error.strerror}; any file that was there is unchanged")


def in_order(paths: Iterable[Ordered]) -> list[Ordered]:
    """Paths in natural order of their names: part-2 before part-10, day_2 before day_10.

    Every reader of a folder uses this order, so that files numbered in order of time are read in that order.
    """
    return sorted(paths, key=_order)


def by_number(name: str) -> tuple[int, str]:
    """Sorting key of names with one prefix and a zero-padded number, as step-00001000: a longer number is larger."""
    return len(name), name


def files_inside(folder: AnyPath) -> list[AnyPath]:
    """The files of a folder and its subfolders, in natural order; names beginning with . or _ are hidden."""
    inside: Iterable[AnyPath] = folder.rglob("*")
    shown = (each for each in inside if not any(part[0] in "._" for part in each.relative_to(folder).parts))
    return in_order(each for each in shown if not each.is_dir())


def check_once(paths: Iterable[AnyPath]) -> None:
    """Raise UsageError if a file is listed twice, for example by its own name and by its folder."""
    found: set[str] = set()
    for path in map(str, paths):
        if path in found:
            raise UsageError(f"'{path}' would be read twice; name it, or the folder that it is in, once in `paths`")
        found.add(path)


def _order(path: AnyPath) -> tuple[list[list[tuple[int, str]]], str]:
    """Sorting key of a path: each part as alternating text and numbers, as (0, text) and (number, '')."""
    words = [enumerate(_NUMBER.split(part)) for part in path.parts]
    return [[(int(word), "") if at % 2 else (0, word) for at, word in each] for each in words], str(path)
