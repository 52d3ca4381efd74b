"""Files of lines, plain or .gz: where their blocks of lines begin, the text of a block, and an index of both (.npz)."""

import gzip
import hashlib
import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile, RecSmithError, UsageError

BLOCK_LINES = 8192  # of a block
CHUNK = 2**24  # bytes read at once while lines are counted
KEPT_BLOCKS = 40  # of a .gz file, passed over on the way to another block: about 2 MB each


def files_of(paths: tuple[str, ...]) -> list[Path]:
    """The files of some paths; those of a folder in the order of their names, hidden ones left out.

    Raises:
        UsageError: a path does not exist, or a folder is empty.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
            if not inside:
                raise UsageError(f"'{path}' is a folder without files; give the folder that holds the data")
            found += sorted(inside, key=lambda each: (len(each.name), each.name))  # day_2 comes before day_10
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"cannot read '{path}': there is no such file; give the path of a file or folder")
    return found


class LineFile:
    """A file of lines; `is_gzip` ones can only be read from their beginning on."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_gzip = path, path.suffix == ".gz"
        self._file: IO[bytes] | None = None
        self._passed: dict[int, bytes] = {}

    def digest(self) -> str:
        """A digest, which changes with the file's name, size and time of change."""
        found = self.path.stat()
        described = f"{self.path.name} {found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    def index(self) -> tuple[Ints, int]:
        """(bytes at which blocks begin, and the size of all at the end; lines in all), of the text if it is packed."""
        begins, lines, size, ended = [0], 0, 0, True
        for chunk in self._chunks():
            at = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
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
        """Forget the place in the file, and what was passed over."""
        if self._file is not None:
            self._file.close()
        self._file, self._passed = None, {}

    def __del__(self) -> None:
        """Close the file of a reader that nobody needs any more."""
        self.close()

    def _read(self, block: int, begins: Ints) -> bytes:
        """The bytes of a block; those of blocks passed over in a .gz file are kept for a while."""
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
        found = file.read(size)
        if len(found) != size:
            raise CorruptFile(f"'{self.path}' is shorter than it was when its lines were counted; begin again")
        return found

    def _opened(self) -> IO[bytes]:
        return cast(IO[bytes], gzip.open(self.path, "rb")) if self.is_gzip else self.path.open("rb")

    def _damaged(self, error: Exception) -> CorruptFile:
        reason = "it ends in the middle" if isinstance(error, EOFError) else str(error)
        return CorruptFile(f"'{self.path}' cannot be read: {reason}; fetch it again")


def read_index(path: str, digest: str) -> list[tuple[Ints, int]] | None:
    """(begins of blocks, lines) of each file; None where there is no index yet, or the files changed since.

    Raises:
        CorruptFile: the file is there and is no index.
    """
    if not Path(path).exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as held:
            if str(held["digest"]) != digest:
                return None
            return [(held[f"begins_{at}"], int(lines)) for at, lines in enumerate(held["lines"].tolist())]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptFile(f"'{path}' is not an index of lines ({error}); remove it, or give another path") from None


def write_index(path: str, digest: str, index: list[tuple[Ints, int]]) -> None:
    """Write the index, whole or not at all."""
    arrays = {f"begins_{at}": begins for at, (begins, _) in enumerate(index)}
    packed = io.BytesIO()
    np.savez_compressed(
        packed, digest=np.array(digest), lines=np.array([lines for _, lines in index]), **cast(Any, arrays)
    )
    try:
        handle, name = tempfile.mkstemp(dir=Path(path).parent, prefix=f".{Path(path).name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(packed.getvalue())
        Path(name).replace(path)
    except OSError as error:
        raise RecSmithError(f"cannot write '{path}': {error.strerror}; give another path for the index") from None
