"""The journal: whole lines are read back, half of a last line is cut off, and damage in the middle is named."""

from pathlib import Path

import pytest

from recsmith.errors import CorruptFile
from recsmith.measuring.journal import Journal, Row, read_journal


def check(row: Row) -> str:
    return "" if set(row) <= {"position", "begin"} else "it is something else"


def test_lines_are_read_back_without_half_of_a_last_one(tmp_path: Path):
    journal = Journal(tmp_path)
    journal.write({"position": 0})
    journal.write({"begin": 1})
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"posit')
    assert read_journal(tmp_path, check) == [{"position": 0}, {"begin": 1}]
    Journal(tmp_path).write({"position": 1})
    assert read_journal(tmp_path, check)[-1] == {"position": 1}
    journal.clear()
    assert read_journal(tmp_path, check) == []


@pytest.mark.parametrize("line", ["{", "[1]", '{"other": 1}'])
def test_damage_in_the_middle_is_named(tmp_path: Path, line: str):
    (tmp_path / "journal.jsonl").write_text(f'{{"position": 0}}\n{line}\n{{"position": 1}}\n')
    with pytest.raises(CorruptFile, match="is damaged in line 2: "):
        read_journal(tmp_path, check)


def test_numbers_that_are_none_are_not_written(tmp_path: Path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Journal(tmp_path).write({"position": float("nan")})
