"""The journal of a folder: a JSON line for each row, so that rows survive any end of a run.

A line is passed to the operating system after each row, so kill -9 loses none; every SYNC_S seconds the file is forced
to the disk.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.files import parse_json, read_bytes

Row = dict[str, Any]
Check = Callable[[Row], str]  # returns what is wrong with a line, in words; '' if nothing is
NAME = "journal.jsonl"
SYNC_S = 5.0  # seconds between fsyncs. Trade-off: longer loses more rows in a power failure, shorter waits for disks
LONGEST_LINE = 2**20  # bytes; rows of the largest cases have a twentieth of this


class Journal:
    """Appends lines to the journal of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path, self._synced = folder / NAME, 0.0
        if self._path.exists():  # cut off the part of a line that a killed process wrote
            os.truncate(self._path, read_bytes(self._path).rfind(b"\n") + 1)

    def write(self, row: Row) -> None:
        """Append a line; if the disk is full, restore the journal and raise RecSmithError."""
        size = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
                file.flush()
                if time.monotonic() - self._synced > SYNC_S:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._path, size)
            raise RecSmithError(
                f"cannot write '{self._path}': {error.strerror}; the samples before are kept: make room and run again"
            ) from None

    def clear(self) -> None:
        """Remove the journal after its rows were written to a part."""
        self._path.unlink(missing_ok=True)


def read_journal(folder: Path, check: Check) -> list[Row]:
    """All complete lines; CorruptFile for the first one that is damaged, or with which `check` finds a problem."""
    path = folder / NAME
    if not os.path.lexists(path):
        return []
    *whole, _ = read_bytes(path).split(b"\n")
    return [_row(path, number, bytes(line), check) for number, line in enumerate(whole, start=1)]


def _row(path: Path, number: int, line: bytes, check: Check) -> Row:
    if len(line) > LONGEST_LINE:
        _damaged(path, number, f"it has {len(line):,} bytes")
    try:
        row = parse_json(line.decode(), f"line {number}")
    except (CorruptFile, UnicodeDecodeError):
        _damaged(path, number, "it is no JSON")
    if not isinstance(row, dict):
        _damaged(path, number, "it is no object")
    trouble = check(cast(Row, row))
    if trouble:
        _damaged(path, number, trouble)
    return cast(Row, row)


def _damaged(path: Path, number: int, trouble: str) -> NoReturn:
    raise CorruptFile(f"'{path}' is damaged in line {number}: {trouble}; remove that line, the others are whole")
