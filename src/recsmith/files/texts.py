"""Reads text files up to a size limit, and writes files whole or not at all; names and paths that people give."""

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

LARGEST_FILE = 512 * 2**20  # bytes, as a plan of 100,000 tables on 4,096 devices has; more is refused before it is read
STDIN = "-"
PATIENCE_S = 60.0  # without a byte, before a pipe is given up; longer suits slow writers, shorter forgotten ones
BLOCK = 2**20  # bytes read at once
STORES = ("s3", "gs", "hdfs")  # whose addresses are read and written (remote/)
HERE = "file://"  # before a path of this machine
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://?")  # paths join both strokes
_SECRETS = re.compile(r"(:/{1,2})(?:[^/@]*:[^@]*|[^/@]+)@|[?].*")  # of an address; secrets of S3 may hold strokes
_NUMBER = re.compile(r"([0-9]+)")
PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}  # by how files begin


# A path of this machine, or of a store: a RemotePath (remote/paths.py), which loads when an address is named.
AnyPath = Path | Any
Ordered = TypeVar("Ordered", bound=AnyPath)


class Given(str):
    """The name of a text, for messages, with the text itself: no reader looks for a file or a built-in of this name."""

    __slots__ = ("text",)
    text: str

    @classmethod
    def of(cls, name: str, text: str) -> "Given":
        """A text under a name, whose ending says the form, as that of a file does."""
        made = cls(name)
        made.text = text
        return made


def source_text(source: object, wanted: str) -> str:
    """The text of a name or path; UsageError for what is neither.

    wanted: what may be given instead, such as 'a Workload'.
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
        UsageError: it cannot be read: there is none, it is a folder or a device, or nothing comes through a pipe.
        CorruptFile: it is larger, packed, or not UTF-8.
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
        handle = os.open(source, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait until somebody writes
    except (OSError, ValueError) as error:  # ValueError: a path that holds a null byte
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
    """What a file or a pipe holds, up to one block more than is allowed; UsageError where a pipe stays silent."""
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
    """Whether a text is the address of a store that is read and written, such as s3://bucket/clicks."""
    found = _ADDRESS.match(str(source))
    return found is not None and found[1] in STORES and found[0].endswith("://")


def shown_address(source: object) -> str:
    """An address without what may be a password or a key in it."""
    return _SECRETS.sub(lambda found: f"{found[1]}***@" if found[1] else "?***", str(source))


def path_of(source: str | Path) -> AnyPath:
    """The path that a text names: of a file of this machine, or of a file or folder in a store.

    Raises:
        UsageError: it is an address without a bucket, or with credentials in it.
        MissingExtra: it is the address of a store, and pyarrow is not installed.
    """
    if is_address(source):
        return import_module("recsmith.files.remote.paths").remote_path(str(source))
    return Path(str(source).removeprefix(HERE))


def check_is_no_address(source: AnyPath | str) -> None:
    """Refuse what is no path of a file but an address, such as https://host/clicks; a file of that name is a file."""
    found = _ADDRESS.match(str(source))
    if found and not Path(str(source)).exists():
        known = ", ".join(f"{each}://" for each in STORES)
        cure = "what is named here is read from files alone" if found[1] in STORES else f"data and plans may be {known}"
        raise UsageError(
            f"'{shown_address(source)}' is an address of '{found[1]}', and {cure}; copy it, and give the path"
        )


def is_regular_file(path: Path) -> bool:
    """Whether a path is a file, and no folder, pipe or device; one that no system could have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_is_file(path: AnyPath) -> None:
    """Refuse what is no file that can be read from any place: nothing, a folder, or what waits for others to write.

    Raises:
        UsageError: there is no such file, or it is a pipe, a device or a socket.
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
    """Write a whole file or nothing: a failed or interrupted write leaves an existing file as it was.

    A link stays a link: the file it leads to is replaced. Devices and pipes (/dev/null, >(gzip)) are written to. At an
    address of a store it is an object.
    """
    if not isinstance(remote := path_of(target), Path):
        remote.write_bytes(text.encode("utf-8"))
        return
    target = str(remote) if target.startswith(HERE) else target
    if is_stream(target):
        _write_stream(target, text)
        return
    path = Path(os.path.realpath(target))
    _replace(target, path, text.encode("utf-8"))


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file of bytes or nothing, as `write_text` does."""
    path = Path(os.path.realpath(path))
    _replace(str(path), path, data)


def _replace(target: str, path: Path, data: bytes) -> None:
    """Put bytes in the place of a file, by a temporary one beside it; a new file has the mode of the umask."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
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
    """Whether the target exists and is neither a file nor a folder: a device, a pipe."""
    try:
        mode = Path(target).stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refuse_target(target: str, error: OSError) -> NoReturn:
    """UsageError of a target that the system refuses."""
    raise UsageError(f"cannot write '{target}': {error.strerror or error}; choose a folder you may write to") from None


def _write_failure(target: str, error: OSError) -> RecSmithError:
    return RecSmithError(f"cannot write '{target}': {error.strerror}; any file that was there is unchanged")


def in_order(paths: Iterable[Ordered]) -> list[Ordered]:
    """Paths in the order of their names, in which numbers count as numbers: part-2 before part-10, day_2 before day_10.

    Every reader of a folder takes its files so: what was numbered as it came is read as it came.
    """
    return sorted(paths, key=_order)


def files_inside(folder: AnyPath) -> list[AnyPath]:
    """The files of a folder and of folders in it, in order; without what a name that begins with . or _ hides."""
    inside: Iterable[AnyPath] = folder.rglob("*")
    shown = (each for each in inside if not any(part[0] in "._" for part in each.relative_to(folder).parts))
    return in_order(each for each in shown if not each.is_dir())


def check_once(paths: Iterable[AnyPath]) -> None:
    """Refuse files of which one is there twice, as where a file is named beside its folder; UsageError."""
    found: set[str] = set()
    for path in map(str, paths):
        if path in found:
            raise UsageError(f"'{path}' would be read twice; name it, or the folder that it is in, once in `paths`")
        found.add(path)


def _order(path: AnyPath) -> tuple[list[list[tuple[int, str]]], str]:
    """Text and numbers of each part of a path by turns; (0, text), or (number, '') behind a text."""
    words = [enumerate(_NUMBER.split(part)) for part in path.parts]
    return [[(int(word), "") if at % 2 else (0, word) for at, word in each] for each in words], str(path)
