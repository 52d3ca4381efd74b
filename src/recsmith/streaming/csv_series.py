"""Series of a CSV file: a column of numbers a series, in order of time."""

import csv
import io
from collections.abc import Iterable

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import did_you_mean, read_text
from recsmith.streaming.series import LARGEST, is_judged


@noun
class NamedSeries:
    """A series: its column, its values, what the first column says of each (such as its time), and empty cells."""

    name: str
    values: tuple[float, ...]
    labels: tuple[str, ...]
    missing: int = 0

    @property
    def constant(self) -> bool:
        """Whether all its values, two or more, are the same."""
        return len(self.values) > 1 and len(set(self.values)) == 1


def read_series(source: str, columns: Iterable[str] = ()) -> tuple[NamedSeries, ...]:
    """The series of a CSV file with a header ('-' is stdin). columns: by name; none: all whose first value is a number.

    Empty cells are left out.

    Raises:
        UsageError: a column is not there.
        CorruptFile: a value of a series is no finite number up to 1e150, a row is short, or no column holds numbers.
    """
    columns = tuple(columns)
    rows = _rows(source)
    if len(rows) < 2:
        raise CorruptFile(f"'{source}' has no rows below a header; give a CSV file with a column a series")
    if rows[0] and all(_number(cell) is not None for cell in rows[0]):
        raise CorruptFile(
            f"'{source}' has numbers alone in its first line ({', '.join(rows[0][:3])}), where names of columns "
            "belong; add a line of names"
        )
    header, body = rows[0], [(number, row) for number, row in enumerate(rows[1:], 2) if row]
    for number, row in body:
        if len(row) != len(header):
            raise CorruptFile(f"'{source}', line {number}: {len(row)} cells, and the header has {len(header)}")
    strange = next((name for name in columns if name not in header), None)
    if strange is not None:
        raise UsageError(f"'{source}' has no column '{strange}'{did_you_mean(strange, header)}")
    twin = next((name for name in header if header.count(name) > 1), None)
    if twin is not None:
        raise CorruptFile(f"'{source}' has several columns '{twin}'; give each a name of its own")
    wanted = columns or tuple(name for place, name in enumerate(header) if _begins_with_a_number(body, place))
    if not wanted:
        raise CorruptFile(f"'{source}' has no column whose first value is a number: {', '.join(header)}")
    return tuple(_series(source, name, header.index(name), body) for name in wanted)


def _series(source: str, name: str, place: int, body: list[tuple[int, list[str]]]) -> NamedSeries:
    values: list[float] = []
    labels: list[str] = []
    for number, row in body:
        if not row[place].strip():
            continue
        value = _number(row[place])
        if value is None:
            raise CorruptFile(
                f"'{source}', line {number}: '{name}' is {row[place]!r:.80}, which is no finite number up to "
                f"{LARGEST:g}; leave the cell empty where there is no value"
            )
        values.append(value)
        labels.append(row[0] if place else str(number))
    return NamedSeries(name=name, values=tuple(values), labels=tuple(labels), missing=len(body) - len(values))


def _rows(source: str) -> list[list[str]]:
    text = read_text(source)
    if text.lstrip().startswith(("{", "[")):
        raise CorruptFile(f"'{source}' is JSON; give a CSV file with a header, or the output folder of a training job")
    try:
        return list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise CorruptFile(f"'{source}' is no CSV file: {error}") from None


def _begins_with_a_number(body: list[tuple[int, list[str]]], place: int) -> bool:
    """Whether the first value of a column is a number, NaN too."""
    first = next((row[place] for _, row in body if row[place].strip()), "")
    try:
        float(first)
    except ValueError:
        return False
    return True


def _number(text: str) -> float | None:
    """The number of a cell that detectors take; None where it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if is_judged(value) else None
