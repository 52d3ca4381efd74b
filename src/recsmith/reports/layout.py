"""The layout of what people read: a label and its text on one line, and grids of columns.

Reports for a terminal are made of `line` and `grid`, which rich draws. Reports that also go into files and logs are
lists of plain lines, made of `plain_line`, `plain_row` and `plain_grid`. `show` prints both. Names that stand in them
come from files: here they are made safe to print.
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
FILE_WIDTH = 140  # characters of a line where no terminal gives its width: the widest grid fits
FEWEST = 4  # characters of a column of texts, which goes on in further lines
NARROW = 20  # characters: the least of a line, and of a text behind its label
GOOD, WATCH, BAD = "green", "yellow", "red"  # what a label's colour says of its line, on a terminal that has colours
MEANINGS = {"note": WATCH}  # labels that always mean the same


def show(report: RenderableType | list[str]) -> None:
    """Print a report to standard output, names as they are; full lines when it is not a terminal.

    On a terminal lines are broken between words, and grids that are too wide leave out the columns that matter least.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    width = max(console.width, NARROW) if console.is_terminal else FILE_WIDTH
    if isinstance(report, list):
        lines = report if not console.is_terminal else [each for text in report for each in broken(text, width)]
        click.echo(printable("\n".join(lines)))
        return
    parts = report.renderables if isinstance(report, Group) else (report,)
    grids = [part for part in parts if isinstance(part, Grid)]
    width = max([width, *(each.needs(width) for each in grids)])  # where columns that must stay are wider
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(report)
    click.echo(captured.get(), nl=False)  # rich itself would end the program when the reader goes away


def broken(text: str, width: int) -> list[str]:
    """A plain line as lines of a width: between words where it can be, what follows indented as its text is."""
    if len(text) <= width:
        return [text]
    label = re.match(r"\s*\S+\s{2,}", text[: LABEL_WIDTH + 8])
    indent = min(label.end() if label else len(text) - len(text.lstrip()) + 2, width - NARROW)
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, drop_whitespace=True, break_on_hyphens=False)


class line:  # noqa: N801 (reads as what it makes, as `grid` does)
    """A bold label and its text, which goes on under itself where a line ends.

    meaning: GOOD, WATCH or BAD, the label's colour; none without.
    """

    def __init__(self, label: str, text: str, meaning: str = "") -> None:
        self.label, self.text = label, printable(text)
        self.style = f"bold {meaning or MEANINGS.get(label, '')}".strip()

    @property
    def plain(self) -> str:
        """All of it on one line."""
        return f"{self.label:<{LABEL_WIDTH}}{self.text}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines of the console's width."""
        width = max(options.max_width - LABEL_WIDTH, NARROW)
        texts = Text(self.text).wrap(console, width, overflow="fold")
        for number, text in enumerate(texts):
            text.rstrip()
            yield Text.assemble((f"{'' if number else self.label:<{LABEL_WIDTH}}", self.style), text, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Any width that leaves room for words."""
        return Measurement(min(NARROW, options.max_width), min(len(self.plain), options.max_width))


class Grid:
    """Columns under headings: first those that are aligned left, then those aligned right.

    Times and sizes of a right column have one unit, that of the largest, and cells of right columns are never broken.
    Where a line is too narrow for all columns, those named `optional` leave, the first of them first; then texts of
    left columns go on in further lines.
    """

    def __init__(self, left: Sequence[str], right: Sequence[str], optional: Sequence[str], *, tight: bool) -> None:
        self.headings, self.lefts = (*left, *right), len(left)
        self.optional, self.tight = optional, tight
        self.rows: list[tuple[str, ...]] = []
        self._shown_rows: list[tuple[str, ...]] = []
        self.sections: list[int] = []

    @property
    def row_count(self) -> int:
        """How many rows it has."""
        return len(self.rows)

    def add_row(self, *cells: str) -> None:
        """Add a row, whose cells are made safe to print."""
        self.rows.append(tuple(cell if isinstance(cell, Quantity) else one_line(cell) for cell in cells))

    def shown_rows(self) -> list[tuple[str, ...]]:
        """The rows as they are shown: one unit a column."""
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
        """End a section with a line."""
        self.sections.append(len(self.rows))

    def table(self, width: int) -> Table:
        """The columns that fit a width, as rich draws them."""
        shown, tight = self._shown(width)
        made = Table(box=SIMPLE, pad_edge=False, collapse_padding=tight)
        for number, chars in self._widths(shown, width, tight=tight).items():
            justify = "left" if number < self.lefts else "right"
            made.add_column(self.headings[number], justify=justify, overflow="fold", width=chars)
        for number, row in enumerate(self.shown_rows(), 1):
            made.add_row(*(row[column] for column in shown if column < len(row)), end_section=number in self.sections)
        return made

    def needs(self, width: int) -> int:
        """The least width of the columns that are shown at a width: more than that, where too many must stay."""
        shown, tight = self._shown(width)
        texts = sum(max(self._width(number) - FEWEST, 0) for number in shown if number < self.lefts)
        return self._least(shown, tight=tight) - texts

    def _shown(self, width: int) -> tuple[list[int], bool]:
        """Which columns are shown at a width, and whether they stand closer together."""
        shown = list(range(len(self.headings)))
        leaving = [number for name in self.optional for number in reversed(shown) if self.headings[number] == name]
        loose = sum(map(self._longest, shown[self.lefts :])) + self._least(shown[: self.lefts], tight=False)
        tight = self.tight or loose + 3 * (len(shown) - self.lefts) > width
        while leaving and self._least(shown, tight=tight) > width:
            shown.remove(leaving.pop(0))
        return shown, tight

    def _widths(self, shown: Sequence[int], width: int, *, tight: bool) -> dict[int, int]:
        """Characters of each column: what it needs, and of what is left a character each in turns, up to its texts."""
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
        """Characters that columns need: their own, two or three between them, and one at each end."""
        return sum(map(self._width, shown)) + (2 if tight else 3) * (len(shown) - 1) + 2

    def _width(self, number: int) -> int:
        """The least width of a column: words of its heading and of texts stay whole, and whole cells of right ones."""
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
        """The columns that fit the console."""
        yield self.table(options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As wide as its columns."""
        return Measurement.get(console, options, self.table(options.max_width))


def grid(
    *, left: Sequence[str] = (), right: Sequence[str] = (), optional: Sequence[str] = (), tight: bool = False
) -> Grid:
    """An empty grid with these headings. optional: those that may be left out, the first of them first."""
    return Grid(left, right, optional, tight=tight)


def add_first(made: Grid, rows: Sequence[Sequence[str]], most: int) -> None:
    """Add at most so many rows to a grid, and one with the number of those left out."""
    for row in rows[:most]:
        made.add_row(*row)
    if len(rows) > most:
        made.add_row(f"… {len(rows) - most:,} more")


def plain_line(label: str, text: str, width: int = LABEL_WIDTH) -> str:
    """A label, as wide as all labels of its report, and its text."""
    return f"{label:<{width}}{text}"


def plus_minus(value: float, within: float | None, form: str) -> str:
    """A figure and half of its interval, where that is known, such as 0.8012 ± 0.0011."""
    return f"{value:{form}}" + ("" if within is None else f" ± {within:{form.removeprefix('+')}}")


def plain_row(cells: Sequence[str], widths: Sequence[int], between: str = "") -> str:
    """Cells at these widths, the first aligned left, the others right."""
    first, *others = cells
    return between.join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])


def plain_grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equally many cells, two spaces between columns that are as wide as they need."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [plain_row(row, widths, "  ") for row in rows]
