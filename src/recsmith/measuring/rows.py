"""Reads the rows of a folder of measurements: those of its parquet parts, then those of its journal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.errors import CorruptFile
from recsmith.measuring.about import load_about
from recsmith.measuring.columns import COLUMNS
from recsmith.measuring.journal import NAME, Row, read_journal
from recsmith.measuring.parquet_parts import last_folded, part_files, read_part
from recsmith.measuring.row_checks import line_check, missing


def journal_rows(path: Path) -> list[Row]:
    """Rows of the journal that no part holds, in order of positions.

    Raises:
        UsageError: the folder holds no measurements.
        CorruptFile: a line of the journal is not what measuring writes, or about.json or a part's name is damaged.
    """
    folded = last_folded(path)
    lines = read_journal(path, line_check(load_about(path)))
    return [row for row in lines if row.get("position", -1) > folded]


def whole_rows(path: Path, names: Sequence[str] | None = None) -> list[Row]:
    """Rows of the journal that no part holds, each of which has a value in each column that must have one.

    names: of the columns that are asked for; all by default.

    Raises:
        UsageError, CorruptFile: as journal_rows does, or a row has no value.
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
            columns[name].append(row.get(name))
    return columns
