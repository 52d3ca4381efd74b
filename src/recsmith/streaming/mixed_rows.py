"""Detects files whose rows belong to several series: place labels repeat, and a text column names each row's series."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence

REPEATED = 0.25  # least share of rows with the place of an earlier row
APART = 0.99  # least share of rows that place and text together identify
ROWS = 10  # least mean number of rows per series
NAMED = 3  # names of series in the warning


def mixed_rows(
    source: str, cells: Mapping[str, Sequence[str]], place: str, texts: Iterable[str], delimiter: str
) -> str | None:
    """A warning if rows belong to several series, with a command that selects one; None if they belong to one.

    Args:
        source: the file.
        cells: the cells of all columns, in order.
        place: the column that labels rows.
        texts: the columns of text.
        delimiter: separator of the file's cells.
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
    """A shell command that judges the rows of one series. column: number of the text column, from 1."""
    separator = {"\t": "'\\t'", ";": "';'"}.get(delimiter, delimiter)
    program = shlex.quote(f"NR==1 || ${column}=={json.dumps(kind, ensure_ascii=False)}")
    file = "" if source == "-" else f" {shlex.quote(source)}"
    return f"awk -F{separator} {program}{file} | recsmith watch -"
