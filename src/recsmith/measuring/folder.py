"""A folder of measurements, open for writing: append-only, and safe against kill -9 and full disks.

    about.json               what is measured here; written first, never changed
    journal.jsonl            rows that no part holds yet
    part-A-B.parquet         rows A to B, folded out of the journal

A row is a visit of a sample, or an exchange. One process at a time writes. Every PART_ROWS rows the journal becomes a
part, written beside and renamed. A journal that was folded and not yet removed is known by its positions. An
interruption loses at most the row that was being measured.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from recsmith.measuring.about import About, load_about, write_about
from recsmith.measuring.folder_lock import lock_folder
from recsmith.measuring.journal import Journal, Row, read_journal
from recsmith.measuring.parquet_parts import has_pyarrow, last_folded, write_part
from recsmith.measuring.row_checks import line_check
from recsmith.measuring.rows import whole_rows

PART_ROWS = 5000  # rows of a part; larger: fewer files, but a longer journal to read where there is no pyarrow
NOTHING = -1  # in place of a position: no row is being measured


class Folder:
    """An open folder: `begin` a position, `add` its row, `fold` now and then.

    position: of the next row. pending: rows in the journal. interrupted: whether the next row was begun before, by a
    run that did not live to finish it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending, self.position, self.interrupted = 0, 0, False
        self._journal = self._opened()

    def reread(self) -> None:
        """Take in what is there, which another process may have written on this one's behalf."""
        self._journal = self._opened()

    def _opened(self) -> Journal:
        """The journal for writing, and what it and the parts say, in the attributes."""
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
        """Fold where the journal has a part's rows and pyarrow is installed."""
        if self.pending >= PART_ROWS and has_pyarrow():
            self.fold()

    def fold_if_possible(self) -> None:
        """Fold where pyarrow is installed; without it, rows stay in the journal."""
        if has_pyarrow():
            self.fold()


@contextmanager
def open_folder(path: Path, about: About) -> Generator[Folder]:
    """The folder for writing, made if need be.

    Raises:
        UsageError: it holds something else, or another process writes to it.
        CorruptFile: its journal is damaged.
    """
    with lock_folder(path):
        write_about(path, about)
        yield Folder(path)
