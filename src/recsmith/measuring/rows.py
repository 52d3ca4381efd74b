"""Reads the rows of a folder of measurements: those of its parquet parts, then those of its journal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.measuring.about import load_about
from recsmith.measuring.journal import Row, read_journal
from recsmith.measuring.parquet_parts import last_folded, part_files, read_part


def journal_rows(path: Path) -> list[Row]:
    """Rows of the journal that no part holds, in order of positions."""
    folded = last_folded(path)
    return [row for row in read_journal(path) if row.get("position", -1) > folded]


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of all rows of a folder, parts and journal, in order of positions.

    Raises:
        UsageError: the folder holds no measurements.
        CorruptFile: a part or the journal is damaged, or of another schema.
        MissingExtra: there are parts and no pyarrow.
    """
    kind = load_about(path).kind
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for part in part_files(path):
        table = read_part(part, kind, names)
        for name in names:
            columns[name] += table[name].to_pylist()
    for row in journal_rows(path):
        for name in names:
            columns[name].append(row.get(name))
    return columns
