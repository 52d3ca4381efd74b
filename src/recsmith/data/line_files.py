"""Text files, plain or .gz, read in blocks of lines; an index of where the blocks begin can be saved (.npz)."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import AnyPath, check_is_file, check_once, files_inside, path_of, replace_file

BLOCK_LINES = 8192  # lines in a block
CHUNK = 2**24  # bytes read at once while lines are counted
LARGEST_BLOCK = 2**24  # bytes of the largest block that is kept whole; lines of samples have 500 characters at most
LONGEST_LINE = 4096  # bytes kept of each line in a larger block
HEAD = 2**16  # bytes at the beginning of a file by which its format is recognized
KEPT_BLOCKS = 40  # blocks of a .gz file kept when they are read on the way to a later one; about 2 MB each


def files_of(paths: tuple[str, ...]) -> list[AnyPath]:
    """The files at the given paths; a folder stands for all files in it and its subfolders.

    Files of a folder are ordered by names and numbers, without names that begin with . or _.

    Raises:
        UsageError: a path does not exist or is a pipe or a device, a folder is empty, or a file is named twice.
    """
    found: list[AnyPath] = []
    for path in map(path_of, paths):
        if path.is_dir():
            inside = files_inside(path)
            if not inside:
                raise UsageError(f"'{path}' is a folder without files; give the folder that holds the data")
            found += inside
        else:
            found.append(path)
    for path in found:
        check_is_file(path)
    check_once(found)
    return found


class LineFile:
    """A text file; a .gz file (`is_gzip`) can only be read in sequence from its beginning.

    quoted: whether line ends within "quotes" are part of the text, as in CSV.
    """

    def __init__(self, path: AnyPath, *, quoted: bool = False) -> None:
        self.quoted = quoted
        self.path, self.is_gzip = path, path.suffix == ".gz"
        self._file: IO[bytes] | None = None
        self._passed: dict[int, bytes] = {}

    def digest(self) -> str:
        """Digest of the file's name, size and modification time."""
        found = self.path.stat()
        described = f"{self.path.name} {found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    def index(self) -> tuple[Ints, int]:
        """(byte offsets at which blocks begin, then the size of the text; number of lines), of the unpacked text."""
        begins, lines, size, ended, within = [0], 0, 0, True, False
        for chunk in self._chunks():
            at = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
            if self.quoted:
                at, within = _outside_quotes(chunk, at, within)
            full = np.arange(BLOCK_LINES - 1 - lines % BLOCK_LINES, len(at), BLOCK_LINES)
            begins += (at[full] + size + 1).tolist()
            lines, size, ended = lines + len(at), size + len(chunk), chunk.endswith(b"\n")
        lines += not ended
        return np.array(begins if begins[-1] == size else [*begins, size], dtype=np.int64), lines

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self._opened() as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except (EOFError, zlib.error, OSError) as error:
            raise self._damaged(error) from None

    def text(self, block: int, begins: Ints) -> bytes:
        """The lines of a block."""
        if block in self._passed:
            return self._passed.pop(block)
        try:
            return self._read(block, begins)
        except (EOFError, zlib.error, OSError) as error:
            raise self._damaged(error) from None

    def close(self) -> None:
        """Close the file and forget the kept blocks."""
        if self._file is not None:
            self._file.close()
        self._file, self._passed = None, {}

    def __del__(self) -> None:
        """Close the file when the reader is garbage-collected."""
        self.close()

    def _read(self, block: int, begins: Ints) -> bytes:
        """The bytes of a block; the last KEPT_BLOCKS blocks that are read on the way to it are kept."""
        file = self._file or self._opened()
        self._file = file
        if (
            not self.is_gzip
            or file.tell() > begins[block]
            or block - KEPT_BLOCKS > np.searchsorted(begins, file.tell())
        ):
            file.seek(int(begins[block]))
        while (at := int(np.searchsorted(begins, file.tell()))) < block:
            self._passed[at] = self._exactly(file, int(begins[at + 1] - begins[at]))
            self._passed = dict(list(self._passed.items())[-KEPT_BLOCKS:])
        return self._exactly(file, int(begins[block + 1] - begins[block]))

    def _exactly(self, file: IO[bytes], size: int) -> bytes:
        if size > LARGEST_BLOCK:
            return b"".join(self._shortened(file, size))
        found = file.read(size)
        if len(found) != size:
            raise self._shorter()
        return found

    def _shortened(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """The lines of a block that is too large for samples, each cut off at LONGEST_LINE bytes."""
        length = 0  # bytes of the current line so far
        while size:
            chunk = file.read(min(CHUNK, size))
            if not chunk:
                raise self._shorter()
            size -= len(chunk)
            for at, piece in enumerate(chunk.split(b"\n")):
                if at:
                    yield b"\n" if length <= LONGEST_LINE else b" and more\n"
                    length = 0
                yield piece[: max(0, LONGEST_LINE - length)]
                length += len(piece)

    def _shorter(self) -> CorruptFile:
        return CorruptFile(f"'{self.path}' is shorter than it was when its lines were counted; begin again")

    def head(self, size: int = HEAD) -> bytes:
        """The first `size` bytes of the unpacked text."""
        try:
            with self._opened() as file:
                return file.read(size)
        except (EOFError, zlib.error, OSError) as error:
            raise self._damaged(error) from None

    def _opened(self) -> IO[bytes]:
        file = self.path if self.is_gzip and isinstance(self.path, Path) else self.path.open("rb")
        return cast(IO[bytes], gzip.open(cast(Any, file), "rb")) if self.is_gzip else cast(IO[bytes], file)

    def _damaged(self, error: Exception) -> CorruptFile:
        reason = "it ends in the middle" if isinstance(error, EOFError) else str(error)
        return CorruptFile(f"'{self.path}' cannot be read: {reason}; fetch it again")


def _outside_quotes(chunk: bytes, ends: Ints, within: bool) -> tuple[Ints, bool]:
    """(line ends outside quotes, whether a quote is open after the chunk). within: whether one is open before it."""
    quotes = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord('"'))
    before = np.searchsorted(quotes, ends) + within
    return ends[before % 2 == 0], bool((len(quotes) + within) % 2)


def read_index(path: str, digest: str, files: int) -> list[tuple[Ints, int]] | None:
    """(offsets of blocks, number of lines) of each file; None if there is no index, or the files have changed since.

    Raises:
        CorruptFile: the file exists and is no index.
    """
    if not Path(path).exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as held:
            if str(held["digest"]) != digest:
                return None
            found = [(held[f"begins_{at}"], int(lines)) for at, lines in enumerate(held["lines"].tolist())]
    except Exception as error:  # a damaged archive ends in errors of many kinds
        reason = str(error) or type(error).__name__
        raise CorruptFile(f"'{path}' is not an index of lines ({reason}); remove it, or give another path") from None
    if len(found) != files or not all(_is_index(begins, lines) for begins, lines in found):
        raise CorruptFile(f"'{path}' is not an index of lines (blocks do not follow each other); remove it")
    return found


def _is_index(begins: Ints, lines: int) -> bool:
    """Whether block offsets rise from 0, and there are as many blocks as `lines` lines need."""
    return (
        begins.dtype == np.int64 and begins.ndim == 1 and len(begins) > 0 and int(begins[0]) == 0
        and bool((np.diff(begins) > 0).all()) and len(begins) - 1 == -(-lines // BLOCK_LINES)
    )  # fmt: skip


def write_index(path: str, digest: str, index: list[tuple[Ints, int]]) -> None:
    """Write the index to a file, atomically."""
    arrays = {f"begins_{at}": begins for at, (begins, _) in enumerate(index)}
    packed = io.BytesIO()
    np.savez_compressed(
        packed, digest=np.array(digest), lines=np.array([lines for _, lines in index]), **cast(Any, arrays)
    )
    replace_file(Path(path), packed.getvalue())
