"""Rows of a folder: those of the journal that no part holds, and columns over both in order of positions."""

from pathlib import Path

import pytest
from support.exchanged import exchange

from recsmith.measuring.about import About
from recsmith.measuring.folder import open_folder
from recsmith.measuring.rows import journal_rows, read_columns

ABOUT = About(kind="comm", hardware="local ranks", seed=0, ranks=2)


def test_rows_of_a_part_are_not_those_of_the_journal_too(tmp_path: Path):
    with open_folder(tmp_path, ABOUT) as folder:
        for position in range(3):
            folder.add({"position": position, "seed": 7})
        (tmp_path / "part-000000000-000000001.parquet").touch()
        assert [row["position"] for row in journal_rows(tmp_path)] == [2]


def test_columns_go_over_parts_and_journal(tmp_path: Path):
    pytest.importorskip("pyarrow")
    with open_folder(tmp_path, ABOUT) as folder:
        folder.add(exchange(0, seed=7, number=5))
        folder.fold()
        folder.add(exchange(1, seed=8))
    assert read_columns(tmp_path, ["seed", "number"]) == {"seed": [7, 8], "number": [5, 1]}
