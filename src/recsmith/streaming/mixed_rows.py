"""Several series in the rows of one file: their places repeat, and a column of text tells which series a row is of."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence

REPEATED = 0.25  # of rows, at least, whose place an earlier one has
APART = 0.99  # of rows, at least, that a text tells from all others of their place
ROWS = 10  # of a series, at least, on average
NAMED = 3  # series


def mixed_rows(
    source: str, cells: Mapping[str, Sequence[str]], place: str, texts: Iterable[str], delimiter: str
) -> str | None:
    """What is said where rows are of several series, with the command that picks one; None where they are of one.

    cells: of all columns, in their order. place: the column that tells where rows are. texts: columns of text.
    """
    places = cells[place]
    rows = len(places)
    if rows - len(set(places)) < REPEATED * rows:
        return None
    for name in texts:
        kinds = list(dict.fromkeys(cells[name]))
        if 2 <= len(kinds) <= rows // ROWS and len(set(zip(places, cells[name], strict=True))) >= APART * rows:
            more = f" and {len(kinds) - NAMED:,} more" if len(kinds) > NAMED else ""
            command = _command(source, list(cells).index(name) + 1, kinds[0], delimiter)
            return (
                f"'{place}' repeats, and '{name}' tells its rows apart ({', '.join(kinds[:NAMED])}{more}): rows of "
                f"{len(kinds):,} series are judged as one here, so split them, such as {command}"
            )
    return None


def _command(source: str, column: int, kind: str, delimiter: str) -> str:
    """A shell's command that judges the rows of one series. column: counted from 1."""
    separator = {"\t": "'\\t'", ";": "';'"}.get(delimiter, delimiter)
    program = shlex.quote(f"NR==1 || ${column}=={json.dumps(kind, ensure_ascii=False)}")
    file = "" if source == "-" else f" {shlex.quote(source)}"
    return f"awk -F{separator} {program}{file} | recsmith watch -"
