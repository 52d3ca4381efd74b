"""The layout of what people read: a label and its text on one line, and grids of columns.

Reports for a terminal are made of `line` and `grid`, which rich draws. Reports that also go into files and logs are
lists of plain lines, made of `plain_line`, `plain_row` and `plain_grid`. `show` prints both. Names that stand in them
come from files: here they are made safe to print.
"""

from collections.abc import Sequence
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from recsmith.errors import one_line, printable

LABEL_WIDTH = 9  # characters: the longest label, `workload`, and a space
WIDEST = 1000  # characters of a line, within which it is asked how many it needs
FILE_WIDTH = 140  # characters of a line where no terminal gives its width: the widest grid fits


def show(report: RenderableType | list[str]) -> None:
    """Print a report to standard output, names as they are; full lines when it is not a terminal.

    Lines are longer than a narrow terminal where a number would be cut in two otherwise.
    """
    if isinstance(report, list):
        click.echo(printable("\n".join(report)))
        return
    settings: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    _keep_numbers_whole(report)
    console = Console(**settings)
    width = console.width if console.is_terminal else FILE_WIDTH
    least = Measurement.get(console, console.options.update(max_width=WIDEST), report).minimum
    console = Console(width=max(width, least), **settings)
    with console.capture() as captured:
        console.print(report)
    click.echo(captured.get(), nl=False)  # rich itself would end the program when the reader goes away


def _keep_numbers_whole(renderable: RenderableType) -> None:
    """Make right columns of grids as wide as their longest word at least."""
    for part in renderable.renderables if isinstance(renderable, Group) else (renderable,):
        for column in part.columns if isinstance(part, Grid) else ():
            if column.justify == "right":
                texts = (str(cell) for cell in (column.header, *column.cells))
                column.min_width = max((len(word) for text in texts for word in text.split()), default=1)


class _Cells(Grid):
    """A grid whose cells are safe to print."""

    def add_row(self, *cells: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Add a row; rich would take more than text, and no report has more."""
        super().add_row(*map(one_line, cells))


def line(label: str, text: str) -> Text:
    """A bold label and its text."""
    return Text.assemble((f"{label:<{LABEL_WIDTH}}", "bold"), printable(text))


def grid(*, left: Sequence[str] = (), right: Sequence[str] = (), collapse_padding: bool = False) -> Grid:
    """An empty grid with these headings: first the columns that are aligned left, then those aligned right."""
    made = _Cells(box=SIMPLE, pad_edge=False, collapse_padding=collapse_padding)
    for name in left:
        made.add_column(name)
    for name in right:
        made.add_column(name, justify="right")
    return made


def add_first(made: Grid, rows: Sequence[Sequence[str]], most: int) -> None:
    """Add at most so many rows to a grid, and one with the number of those left out."""
    for row in rows[:most]:
        made.add_row(*row)
    if len(rows) > most:
        made.add_row(f"… {len(rows) - most} more")


def plain_line(label: str, text: str, width: int = LABEL_WIDTH) -> str:
    """A label, as wide as all labels of its report, and its text."""
    return f"{label:<{width}}{text}"


def plain_row(cells: Sequence[str], widths: Sequence[int], between: str = "") -> str:
    """Cells at these widths, the first aligned left, the others right."""
    first, *others = cells
    return between.join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])])


def plain_grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equally many cells, two spaces between columns that are as wide as they need."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [plain_row(row, widths, "  ") for row in rows]
