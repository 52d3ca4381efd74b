"""Rows of a planner's report: whole, cut, mixed or short of a table; and equal but for the planner's seconds."""

import pytest
from support.planner_logs import REPORTS, bare

from recsmith.workloads.report_rows import ReportRows


def rows(name: str, **changes: str) -> list[str]:
    """The rows of a stored report from its title on, some words replaced."""
    text = bare(name)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text.splitlines()[1:]


def trouble(lines: list[str]) -> str:
    return ReportRows(2, len(lines) + 1, lines).trouble()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_whole_from_its_batch_size_on(name: str):
    lines = rows(name)
    batch = next(at for at, line in enumerate(lines) if "Batch Size" in line)
    for end in range(len(lines) + 1):
        cut = f"ends in line {end + 1}, before its 'Batch Size'; give the whole log"
        assert trouble(lines[:end]) == ("" if end > batch else cut)


def test_a_report_without_the_table_is_whole():
    lines = rows("mixed")
    first, last = (
        next(at for at, line in enumerate(lines) if word in line) for word in ("Parameter Info", "Batch Size")
    )
    assert trouble(lines[: first - 1] + lines[last - 1 :]) == ""


def test_rows_of_another_report_are_noticed():
    lines = rows("mixed")
    first, last = (
        next(at for at, line in enumerate(lines) if word in line) for word in ("Parameter Info", "Batch Size")
    )
    for at in (0, first, last, first + 4):
        assert "is mixed with rows of another" in trouble([*lines[:at], lines[last], *lines[at:]])
    assert "is mixed with rows of another" in trouble([*lines[: first + 4], lines[last - 1], *lines[first + 4 :]])


@pytest.mark.parametrize("name", REPORTS)
def test_each_row_of_the_table_is_missed(name: str):
    lines = rows(name)
    tables = [at for at, line in enumerate(lines) if line.lstrip("# ").startswith("sparse.")]
    for at in tables:
        assert f"shows {len(tables) - 1} of its {len(tables)} tables" in trouble(lines[:at] + lines[at + 1 :])


def test_copies_are_equal_whatever_the_planner_took():
    first, slow, other = (ReportRows(1, 1, each) for each in (
        rows("mixed"), rows("mixed", **{"ran for 0.0": "ran for 9.9"}), rows("mixed", **{"5000": "5001"}),
    ))  # fmt: skip
    assert first.read_part() == slow.read_part()
    assert first.read_part() != other.read_part()
