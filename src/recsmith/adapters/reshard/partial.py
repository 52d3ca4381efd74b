"""The folder of an output that is not complete yet: files that grow, and a journal of the chunks that they hold.

    OUT.partial/__0_0.distcp ...          one file for each rank that will hold chunks
    OUT.partial/recsmith-journal.jsonl    a line with the digest of the job, then a line with the place of each chunk

Data is forced to the disk before the journal names it. If a run is killed, the next one truncates the files to what the
journal names and continues. At the end the folder gets its metadata and is renamed to OUT in one step.
"""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from recsmith.adapters.checkpoints import Chunk
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import parse_json, read_bytes

SCHEMA = "recsmith/reshard-journal/1"
JOURNAL = "recsmith-journal.jsonl"
FILE = re.compile(r"__[0-9]{1,9}_0\.distcp")  # PyTorch's name for a rank's file
COMMIT_BYTES = 256 * 2**20  # bytes between commits; after a kill, at most about this much is written again
COMMIT_S = 5.0  # seconds between commits; after a kill, about this much work is repeated


class Partial:
    """The unfinished output. of: digest of the reshard's inputs, so that no run continues the work of another one."""

    def __init__(self, folder: Path, of: str) -> None:
        self.folder, self.of = folder, of
        self.chunks: dict[tuple[str, int], Chunk] = {}
        self._waiting: list[tuple[str, int, Chunk]] = []
        self._touched: dict[str, int] = {}  # file: its length
        self._bytes, self._since = 0, time.monotonic()

    def resume(self) -> None:
        """Keep the chunks that an earlier run committed, and remove the rest; UsageError if its inputs differed."""
        journal = self.folder / JOURNAL
        if not journal.exists():
            journal.write_text(json.dumps({"schema": SCHEMA, "of": self.of}) + "\n")
        first, *lines = bytes(read_bytes(journal)).rpartition(b"\n")[0].split(b"\n")
        if not first or self._line(first) != {"schema": SCHEMA, "of": self.of}:
            raise UsageError(
                f"'{self.folder}' is the unfinished work of another reshard; delete it, or give another output"
            )
        for line in filter(None, lines):
            self._take(self._line(line))
        os.truncate(journal, sum(len(line) + 1 for line in (first, *lines)))
        for path in self.folder.iterdir():
            if path.name != JOURNAL and path.name not in self._touched:
                path.unlink()
        for file, length in self._touched.items():
            os.truncate(self.folder / file, length)

    def _line(self, line: bytes) -> Any:
        return parse_json(line.decode(errors="replace"), str(self.folder / JOURNAL))

    def _take(self, row: Any) -> None:
        try:
            chunk = Chunk(
                offsets=tuple(row["offsets"]), sizes=tuple(row["sizes"]), file=row["file"], start=row["start"],
                length=row["length"],
            )  # fmt: skip
            whole = (
                FILE.fullmatch(chunk.file) is not None
                and min(chunk.start, chunk.length) >= 0
                and (self.folder / chunk.file).stat().st_size >= chunk.start + chunk.length
            )
            self.chunks[row["key"], row["number"]] = chunk
        except (KeyError, TypeError, OSError):
            whole = False
        if not whole:
            raise CorruptFile(f"'{self.folder / JOURNAL}' speaks of bytes that are not there; delete '{self.folder}'")
        self._touched[chunk.file] = max(self._touched.get(chunk.file, 0), chunk.start + chunk.length)

    def add(self, key: str, number: int, chunk: Chunk, write: Callable[[BinaryIO], None]) -> None:
        """Append a chunk to its file by calling `write`; its start and length are taken from the file."""
        with (self.folder / chunk.file).open("ab") as file:
            start = file.tell()
            write(file)
            length = file.tell() - start
        made = Chunk(offsets=chunk.offsets, sizes=chunk.sizes, file=chunk.file, start=start, length=length)
        self._waiting.append((key, number, made))
        self._bytes += length
        if self._bytes >= COMMIT_BYTES or time.monotonic() - self._since >= COMMIT_S:
            self.commit()

    def commit(self) -> None:
        """Force the chunks since the last commit to the disk, then name them in the journal."""
        for file in dict.fromkeys(chunk.file for _, _, chunk in self._waiting):
            sync(self.folder / file)
        lines = "".join(
            json.dumps(
                {"key": key, "number": number, "offsets": chunk.offsets, "sizes": chunk.sizes, "file": chunk.file,
                 "start": chunk.start, "length": chunk.length}
            ) + "\n"
            for key, number, chunk in self._waiting
        )  # fmt: skip
        with (self.folder / JOURNAL).open("a") as journal:
            journal.write(lines)
            journal.flush()
            os.fsync(journal.fileno())
        self.chunks |= {(key, number): chunk for key, number, chunk in self._waiting}
        self._waiting, self._bytes, self._since = [], 0, time.monotonic()

    def become(self, output: Path) -> None:
        """Rename the complete folder to the output, in one step."""
        sync(self.folder)
        self.folder.rename(output)
        (output / JOURNAL).unlink()
        sync(output)
        sync(output.parent)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def lock(folder: Path) -> Generator[None]:
    """Lock a folder, created if missing, for this process; UsageError if another process has locked it."""
    folder.mkdir(exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(f"another reshard writes to '{folder}'; wait for it, or give another output") from None
    finally:
        os.close(handle)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder."""
    return shutil.disk_usage(folder).free
