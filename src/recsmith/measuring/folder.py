"""A folder of measurements, read, or open for writing: append-only, and safe against kill -9 and full disks.

    about.json               what is measured here; written first, never changed
    journal.jsonl            rows that are in no part yet
    part-A-B.parquet         rows A to B, folded out of the journal

A row is a visit of a sample, or an exchange. One process at a time writes. After every PART_ROWS rows the journal
becomes a part, which is written under a temporary name and renamed. If a journal was folded but not removed, its
positions show that. An interruption loses at most the row that was being measured.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import locked_folder
from recsmith.measuring.about import About, load_about, write_about
from recsmith.measuring.checks import line_check, missing
from recsmith.measuring.columns import ADDED, COLUMNS
from recsmith.measuring.journal import NAME, Journal, Row, read_journal
from recsmith.measuring.parquet_parts import has_pyarrow, last_folded, part_files, read_part, write_part

# Files that were being written: write_text adds 8 random characters to the name, a part gets a dot before it.
_LEFTOVER = re.compile(r"\.(?:(?:about|settings|alpha-beta)\.json\.[a-z0-9_]{8}|part-[0-9]{9,16}-[0-9]{9,16}\.parquet)")


@contextmanager
def lock_folder(path: Path) -> Generator[None]:
    """Lock a folder for this process, as `locked_folder` does, and remove temporary files of killed processes."""
    with locked_folder(path):
        _remove_leftovers(path)
        yield


def _remove_leftovers(path: Path) -> None:
    """Remove files that processes were writing when they were killed; the lock ensures that none writes now."""
    for entry in os.scandir(path):
        if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink()


def journal_rows(path: Path) -> list[Row]:
    """Rows of the journal that are in no part, in order of positions.

    Raises:
        UsageError: the folder holds no measurements.
        CorruptFile: a line of the journal is not what measuring writes, or about.json or a part's name is damaged.
    """
    folded = last_folded(path)
    lines = read_journal(path, line_check(load_about(path)))
    return [row for row in lines if row.get("position", -1) > folded]


def whole_rows(path: Path, names: Sequence[str] | None = None) -> list[Row]:
    """Rows of the journal that are in no part; each has a value in each required column.

    names: the columns to check; all by default.

    Raises:
        UsageError, CorruptFile: as journal_rows; CorruptFile if a row lacks a value.
    """
    rows, kind = journal_rows(path), load_about(path).kind
    for row in rows:
        lost = missing(row, kind, [column.name for column in COLUMNS[kind]] if names is None else names)
        if lost:
            raise CorruptFile(
                f"'{path / NAME}' is damaged: the row of position {row['position']} has no {lost}; remove its line"
            )
    return rows


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of all rows of a folder, parts and journal, in order of positions.

    Raises:
        UsageError: the folder holds no measurements.
        CorruptFile: a part or the journal is damaged, or of another schema.
        MissingExtra: there are parts and no pyarrow.
    """
    about = load_about(path)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for part in part_files(path):
        table = read_part(part, about, names)
        for name in names:
            columns[name] += table[name].to_pylist()
    for row in whole_rows(path, names):
        for name in names:
            columns[name].append(row.get(name, ADDED.get(name)))
    return columns


@noun
class Limit:
    """A run ends after budget_s seconds, or once its folder holds `samples` samples; whichever comes first.

    samples: steady samples of compute measurements, exchanges of comm measurements.

    Raises:
        UsageError: neither is given, or nothing can be measured within it.
    """

    budget_s: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        """Check that there is a limit, and that something can be measured within it."""
        if self.budget_s is None and self.samples is None:
            raise UsageError("nothing says when to stop; give a --budget such as 20m, or a number of --samples")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(
                f"the budget is {self.budget_s:g} s, in which nothing can be measured; give for example 20m"
            )
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"{self.samples} samples are none; ask for at least 1")

    def reached(self, samples: int, elapsed_s: float) -> bool:
        """Whether a run ends. samples: those of its folder. elapsed_s: its seconds up to now."""
        enough = self.samples is not None and samples >= self.samples
        return enough or (self.budget_s is not None and elapsed_s >= self.budget_s)


PART_ROWS = 5000  # rows of a part; larger: fewer files, but a longer journal to read if there is no pyarrow
NOTHING = -1  # given in place of a position if no row is being measured


class Folder:
    """An open folder: `begin` a position, `add` its row, `fold` now and then.

    position: of the next row. pending: rows in the journal. interrupted: whether an earlier run began the next row and
    ended before finishing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending, self.position, self.interrupted = 0, 0, False
        self._journal = self._opened()

    def reread(self) -> None:
        """Read the folder again, after another process may have written to it for this one."""
        self._journal = self._opened()

    def _opened(self) -> Journal:
        """The journal for writing; also sets the attributes from the journal and the parts."""
        lines, folded = read_journal(self.path, line_check(load_about(self.path))), last_folded(self.path)
        journal = Journal(self.path)
        self.pending = sum(row.get("position", -1) > folded for row in lines)
        self.position = max([folded, *(row["position"] for row in lines if "position" in row)]) + 1
        self.interrupted = [row["begin"] for row in lines if "begin" in row][-1:] == [self.position]
        return journal

    def begin(self, position: int) -> None:
        """Note which position is measured next, or NOTHING."""
        self._journal.write({"begin": position})

    def add(self, row: Row) -> None:
        """Store the row of the next position."""
        self._journal.write(row)
        self.position, self.pending, self.interrupted = row["position"] + 1, self.pending + 1, False

    def fold(self) -> Path | None:
        """Write the journal's rows as a part and remove the journal; None if there are none.

        Raises:
            MissingExtra: there are rows and no pyarrow.
            CorruptFile: a row of the journal is damaged.
            RecSmithError: the part cannot be written; the journal keeps its rows.
        """
        rows = whole_rows(self.path)
        if not rows:
            return None
        target = self.path / f"part-{rows[0]['position']:09d}-{rows[-1]['position']:09d}.parquet"
        write_part(target, load_about(self.path).kind, rows)
        self._journal.clear()
        self.pending = 0
        return target

    def fold_if_full(self) -> None:
        """Fold if the journal has enough rows for a part and pyarrow is installed."""
        if self.pending >= PART_ROWS and has_pyarrow():
            self.fold()

    def fold_if_possible(self) -> None:
        """Fold if pyarrow is installed; without it, rows are kept in the journal."""
        if has_pyarrow():
            self.fold()


@contextmanager
def open_folder(path: Path, about: About) -> Generator[Folder]:
    """Open a folder for writing; it is made if need be.

    Raises:
        UsageError: it holds something else, or another process writes to it.
        CorruptFile: its journal is damaged.
    """
    with lock_folder(path):
        write_about(path, about)
        yield Folder(path)
