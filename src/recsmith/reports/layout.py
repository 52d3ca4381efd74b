"""The layout of reports: a label and its text on one line, and grids of columns.

Reports for a terminal consist of `line` and `grid`, which rich draws. Reports that are also written to files and logs
are lists of plain lines, made by `plain_line`, `plain_row` and `plain_grid`. `show` prints both kinds. Names in them
come from files, so they are made safe to print here.
"""

import re
import textwrap
from collections.abc import Sequence

import click
from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recsmith.errors import one_line, printable
from recsmith.units import Quantity, in_one_unit

LABEL_WIDTH = 9  # characters: the longest label, `workload`, and a space
FILE_WIDTH = 140  # characters of a line if no terminal gives its width: enough for the widest grid
FEWEST = 4  # least characters of a left column, whose texts are wrapped
NARROW = 20  # least characters of a line, and of the text after a label
GOOD, WATCH, BAD = "green", "yellow", "red"  # colours of a label, which judge its line, on terminals with colours
MEANINGS = {"note": WATCH}  # colours of labels that always have the same one


def show(report: RenderableType | list[str]) -> None:
    """Print a report to standard output, names without markup; in full lines if that is not a terminal.

    On a terminal, lines are wrapped between words, and grids that are too wide omit their least important columns.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    width = max(console.width, NARROW) if console.is_terminal else FILE_WIDTH
    if isinstance(report, list):
        lines = report if not console.is_terminal else [each for text in report for each in broken(text, width)]
        click.echo(printable("\n".join(lines)))
        return
    parts = report.renderables if isinstance(report, Group) else (report,)
    grids = [part for part in parts if isinstance(part, Grid)]
    width = max([width, *(each.needs(width) for each in grids)])  # the columns that must be shown may be wider
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(report)
    click.echo(captured.get(), nl=False)  # rich itself would end the program if the reader of stdout closes it


def broken(text: str, width: int) -> list[str]:
    """A plain line wrapped to a width, between words if possible; further lines are indented below its text."""
    if len(text) <= width:
        return [text]
    label = re.match(r"\s*\S+\s{2,}", text[: LABEL_WIDTH + 8])
    indent = min(label.end() if label else len(text) - len(text.lstrip()) + 2, width - NARROW)
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, drop_whitespace=True, break_on_hyphens=False)


class line:  # noqa: N801 (reads as what it makes, as `grid` does)
    """A bold label and its text, which is wrapped below itself.

    meaning: GOOD, WATCH or BAD, which sets the label's colour; '' for none.
    """

    def __init__(self, label: str, text: str, meaning: str = "") -> None:
        self.label, self.text = label, printable(text)
        self.style = f"bold {meaning or MEANINGS.get(label, '')}".strip()

    @property
    def plain(self) -> str:
        """The label and the whole text on one line."""
        return f"{self.label:<{LABEL_WIDTH}}{self.text}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The label and its text, wrapped to the console's width."""
        width = max(options.max_width - LABEL_WIDTH, NARROW)
        texts = Text(self.text).wrap(console, width, overflow="fold")
        for number, text in enumerate(texts):
            text.rstrip()
            yield Text.assemble((f"{'' if number else self.label:<{LABEL_WIDTH}}", self.style), text, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """At least NARROW characters, at most the length of the whole line."""
        return Measurement(min(NARROW, options.max_width), min(len(self.plain), options.max_width))


class Grid:
    """Columns under headings: first the left-aligned ones, then the right-aligned ones.

    Times and sizes in a right column share one unit, that of the largest; cells of right columns are never broken. If a
    line is too narrow for all columns, the columns named in `optional` are omitted, in that order; after that, texts in
    left columns are wrapped.
    """

    def __init__(self, left: Sequence[str], right: Sequence[str], optional: Sequence[str], *, tight: bool) -> None:
        self.headings, self.lefts = (*left, *right), len(left)
        self.optional, self.tight = optional, tight
        self.rows: list[tuple[str, ...]] = []
        self._shown_rows: list[tuple[str, ...]] = []
        self.sections: list[int] = []

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def add_row(self, *cells: str) -> None:
        """Add a row, whose cells are made safe to print."""
        self.rows.append(tuple(cell if isinstance(cell, Quantity) else one_line(cell) for cell in cells))

    def shown_rows(self) -> list[tuple[str, ...]]:
        """The rows as they are printed, with one unit per column."""
        if len(self._shown_rows) != len(self.rows):
            columns = [self._column(number) for number in range(len(self.headings))]
            self._shown_rows = [
                tuple(columns[number][at] for number in range(len(row))) for at, row in enumerate(self.rows)
            ]
        return self._shown_rows

    def _column(self, number: int) -> list[str]:
        cells = [row[number] if number < len(row) else "" for row in self.rows]
        return cells if number < self.lefts else in_one_unit(cells)

    def add_section(self) -> None:
        """End a section: a rule is drawn below the last row."""
        self.sections.append(len(self.rows))

    def table(self, width: int) -> Table:
        """The columns that fit into a width, as a table of rich."""
        shown, tight = self._shown(width)
        made = Table(box=SIMPLE, pad_edge=False, collapse_padding=tight)
        for number, chars in self._widths(shown, width, tight=tight).items():
            justify = "left" if number < self.lefts else "right"
            made.add_column(self.headings[number], justify=justify, overflow="fold", width=chars)
        for number, row in enumerate(self.shown_rows(), 1):
            made.add_row(*(row[column] for column in shown if column < len(row)), end_section=number in self.sections)
        return made

    def needs(self, width: int) -> int:
        """The least width of the columns shown at a width; more than `width` if those that must be shown do not fit."""
        shown, tight = self._shown(width)
        texts = sum(max(self._width(number) - FEWEST, 0) for number in shown if number < self.lefts)
        return self._least(shown, tight=tight) - texts

    def _shown(self, width: int) -> tuple[list[int], bool]:
        """Indexes of the columns shown at a width, and whether they are set closer together."""
        shown = list(range(len(self.headings)))
        leaving = [number for name in self.optional for number in reversed(shown) if self.headings[number] == name]
        loose = sum(map(self._longest, shown[self.lefts :])) + self._least(shown[: self.lefts], tight=False)
        tight = self.tight or loose + 3 * (len(shown) - self.lefts) > width
        while leaving and self._least(shown, tight=tight) > width:
            shown.remove(leaving.pop(0))
        return shown, tight

    def _widths(self, shown: Sequence[int], width: int, *, tight: bool) -> dict[int, int]:
        """Characters of each column: its least width, plus spare characters in turns, up to its longest text."""
        widths = {number: self._width(number) for number in shown}
        room = width - self._least(shown, tight=tight)
        wanted = {number: self._longest(number) for number in shown}
        while room > 0 and (growing := [number for number in shown if widths[number] < wanted[number]][:room]):
            widths |= {number: widths[number] + 1 for number in growing}
            room -= len(growing)
        while room < 0 and (texts := [n for n in shown if n < self.lefts and widths[n] > FEWEST]):
            widths[max(texts, key=lambda n: widths[n])] -= 1
            room += 1
        return widths

    def _least(self, shown: Sequence[int], *, tight: bool) -> int:
        """Characters that columns need: their least widths, two or three between columns, and one at each end."""
        return sum(map(self._width, shown)) + (2 if tight else 3) * (len(shown) - 1) + 2

    def _width(self, number: int) -> int:
        """Least width of a column: words of its heading and texts stay whole; in right columns whole cells do."""
        texts = self.headings[number].split()
        if number < self.lefts:
            words = (word for cell in self._cells(number) for word in cell.split())
            return min(max(map(len, (*texts, *words)), default=1), NARROW)
        return max(map(len, (*texts, *self._cells(number))), default=1)

    def _longest(self, number: int) -> int:
        return max(map(len, (*self.headings[number].splitlines(), *self._cells(number))), default=1)

    def _cells(self, number: int) -> list[str]:
        return [row[number] for row in self.shown_rows() if number < len(row)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The columns that fit the console's width."""
        yield self.table(options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The width of the columns that fit."""
        return Measurement.get(console, options, self.table(options.max_width))


def grid(
    *, left: Sequence[str] = (), right: Sequence[str] = (), optional: Sequence[str] = (), tight: bool = False
) -> Grid:
    """An empty grid with these headings. optional: headings of columns that may be omitted, in this order."""
    return Grid(left, right, optional, tight=tight)


def add_first(made: Grid, rows: Sequence[Sequence[str]], most: int) -> None:
    """Add at most `most` rows to a grid, and one that counts the rest."""
    for row in rows[:most]:
        made.add_row(*row)
    if len(rows) > most:
        made.add_row(f"… {len(rows) - most:,} more")


def plain_line(label: str, text: str, width: int = LABEL_WIDTH) -> str:
    """A label, padded to the report's label width, and its text."""
    return f"{label:<{width}}{text}"


def plus_minus(value: float, within: float | None, form: str) -> str:
    """A figure and half of its interval if that is known, such as 0.8012 ± 0.0011."""
    return f"{value:{form}}" + ("" if within is None else f" ± {within:{form.removeprefix('+')}}")


def plain_row(cells: Sequence[str], widths: Sequence[int], between: str = "") -> str:
    """Cells padded to these widths: the first aligned left, the others right."""
    first, *others = cells
    return between.join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])


def plain_grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a grid, with two spaces between columns as wide as their longest cells. Rows must be equally long."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [plain_row(row, widths, "  ") for row in rows]
