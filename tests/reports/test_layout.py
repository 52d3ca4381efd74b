"""Labels of one width, grids that say how much they leave out, and names that are printed as they are."""

import pytest
from support.printed import text_of

from recsmith.reports.layout import add_first, grid, line, plain_grid, plain_line, plain_row


def test_texts_begin_in_one_column(capsys: pytest.CaptureFixture[str]):
    assert text_of(line("plan", "a"), capsys) == "plan     a\n"
    assert plain_line("plan", "a") == line("plan", "a").plain == "plan     a"
    assert plain_line("plan", "a", 6) == "plan  a"


def test_names_are_no_markup_and_lines_are_whole(capsys: pytest.CaptureFixture[str]):
    odd = "[bold]a[/b] :smile: " + "word " * 20
    assert odd.strip() in text_of(line("", odd), capsys)


def test_left_columns_come_before_right_ones(capsys: pytest.CaptureFixture[str]):
    made = grid(left=("name",), right=("bytes",))
    made.add_row("a", "1")
    rows = [row.strip() for row in text_of(made, capsys).splitlines() if row.strip()]
    assert rows[0] == "name   bytes"
    assert rows[-1] == "a          1"


@pytest.mark.parametrize(("most", "said"), [(3, "c"), (2, "… 1 more")])
def test_rows_that_are_left_out_are_counted(most: int, said: str, capsys: pytest.CaptureFixture[str]):
    made = grid(left=("name",), right=("bytes",))
    add_first(made, [(name, "1") for name in "abc"], most)
    assert said in text_of(made, capsys)
    assert made.row_count == 3


def test_plain_columns_are_as_wide_as_they_need():
    assert plain_grid([("rank", "s"), ("0", "1.25")]) == ["rank     s", "0     1.25"]
    assert plain_row(("a", "b", "c"), (2, 3, 1)) == "a   bc"


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_a_narrow_terminal_cuts_no_number(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    made = grid(right=[f"column {i}" for i in range(9)])
    cells = [f"{i}234.5678 ms" for i in range(9)]
    made.add_row(*cells)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    text = text_of(made, capsys)
    assert all(cell.split()[0] in text for cell in cells)
