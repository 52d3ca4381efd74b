"""The journal of a folder: a JSON line for each row, so that rows survive whatever ends a run.

A line is handed to the system after each row, so kill -9 loses none; it is forced onto the disk every SYNC_S.
"""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from recsmith.errors import CorruptFile, RecSmithError

Row = dict[str, Any]
NAME = "journal.jsonl"
SYNC_S = 5.0  # seconds between fsyncs. Trade-off: longer loses more rows in a power failure, shorter waits for disks
KINDS = ("position", "begin")  # fields that tell lines apart: a row, or a note of what is measured next


class Journal:
    """Appends lines to the journal of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path, self._synced = folder / NAME, 0.0
        if self._path.exists():  # cut off what a killed process wrote of its last line
            os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)

    def write(self, row: Row) -> None:
        """Append a line; RecSmithError, and the journal as it was, where the disk is full."""
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
        """Remove the journal: a part holds its rows."""
        self._path.unlink(missing_ok=True)


def read_journal(folder: Path, kinds: Sequence[str] = KINDS) -> list[Row]:
    """All whole lines; CorruptFile where one in the middle is damaged, or has none of the fields `kinds`."""
    path = folder / NAME
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    return [_row(path, number, line, kinds) for number, line in enumerate(whole, start=1)]


def _row(path: Path, number: int, line: bytes, kinds: Sequence[str]) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        _damaged(path, number)
    if not isinstance(row, dict) or not any(kind in row for kind in kinds):
        _damaged(path, number)
    return cast(Row, row)


def _damaged(path: Path, number: int) -> NoReturn:
    raise CorruptFile(f"'{path}' is damaged in line {number}; remove that line, the others are whole")
