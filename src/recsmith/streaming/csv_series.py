"""Reads series from a CSV file: each column of numbers is a series, and a column of steps or times labels the rows.

Columns of steps or times are not series, and are skipped unless they are named. Imports no torch.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import did_you_mean, read_text
from recsmith.streaming.detectors import detector_of
from recsmith.streaming.mixed_rows import mixed_rows
from recsmith.streaming.series import LARGEST, Alarm, find_alarms, is_judged

MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}  # cells that stand for a missing value
DELIMITERS = ",\t;"  # possible separators of cells; the first one that the header contains is used
PLACES = {
    "step", "global_step", "iteration", "iter", "epoch", "index", "idx", "timestamp", "date", "datetime", "wall_time",
}  # fmt: skip
"""Names of columns that are not series, whatever they hold."""
TIMES = {"time", "ts", "t"}  # names of columns that are not series if they never fall; a `time` may be a duration
RISES, FALLS = (f"{moves} from row to row, as counts of steps, times and totals do" for moves in ("rises", "falls"))
NAMED = "tells where rows are, by its name"
UNJUDGED = TEXT, NOTHING = "holds text", "has no values"  # beginnings of the reasons why a column cannot be a series
DATE = re.compile(r"\d{4}-\d\d")
Row = tuple[int, list[str]]  # (line number in the file, cells)


@noun
class NamedSeries:
    """A series: its column name, its values, and a label for each value (a cell of the place column, or a line number).

    missing: number of cells without a value, which are left out. first_missing: line and text of the first such cell
    that is not empty.
    """

    name: str
    values: tuple[float, ...]
    labels: tuple[str, ...]
    missing: int = 0
    first_missing: tuple[int, str] | None = None

    @property
    def constant(self) -> bool:
        """Whether the series has two or more values and all are equal."""
        return len(self.values) > 1 and len(set(self.values)) == 1


@noun
class SeriesFile:
    """The series of a CSV file. place: the column that labels rows, such as steps or times; none: line numbers do.

    left_out: by name of a column that is no series, the reason. disorder: a warning if rows are not in the order of the
    place column. mixed: a warning if the rows belong to several series.
    """

    source: str
    rows: int
    place: str | None
    series: tuple[NamedSeries, ...]
    left_out: Mapping[str, str]
    disorder: str | None = None
    mixed: str | None = None


def read_series(source: str, columns: Iterable[str] = ()) -> SeriesFile:
    """Read the series of a CSV file with a header ('-' is stdin). columns: names of columns; none: all with numbers.

    Cells without a value are left out, and so are columns that only label rows, unless they are named.

    Raises:
        UsageError: a named column does not exist.
        CorruptFile: a value of a series is no finite number up to 1e150, a row has a wrong number of cells, or no
            column is a series.
    """
    columns = tuple(columns)
    header, body, delimiter = _table(source)
    strange = next((name for name in columns if name not in header), None)
    if strange is not None:
        raise UsageError(f"'{source}' has no column '{strange}'{did_you_mean(strange, header)}")
    cells = {name: [row[at].strip() for _, row in body] for at, name in enumerate(header)}
    why = {name: _no_series(name, column) for name, column in cells.items()}
    left_out = {name: said for name, said in why.items() if said is not None and name not in columns}
    wanted = columns or tuple(name for name in header if name not in left_out)
    place = _place(cells, why)
    if not wanted:
        said = "; ".join(f"'{name}' {why}" for name, why in left_out.items())
        raise CorruptFile(
            f"'{source}' has no column to judge: {said}; write numbers as 12.5, or name one with --column"
        )
    _check_no_places(columns, place, cells, why)
    texts = [name for name, said in why.items() if name != place and (said or "").startswith(TEXT)]
    labels = [str(number) for number, _ in body] if place is None else cells[place]
    return SeriesFile(
        source=source, rows=len(body), place=place,
        series=tuple(_series(source, name, cells[name], labels, body) for name in dict.fromkeys(wanted)),
        left_out={} if columns else {name: said for name, said in left_out.items() if name != place},
        disorder=None if place is None else _disorder(place, cells[place], body),
        mixed=None if place is None else mixed_rows(source, cells, place, texts, delimiter),
    )  # fmt: skip


def judged_series(
    series: Sequence[NamedSeries], detector: object, threshold: float | None = None
) -> list[tuple[Alarm, ...] | str]:
    """For each series its alarms, or the reason why it cannot be judged.

    Raises:
        UsageError: all series are too short for the detector.
    """
    warm, found = detector_of(detector).warm, list[tuple[Alarm, ...] | str]()
    short = [len(each.values) <= warm for each in series]
    for each, few in zip(series, short, strict=True):
        if each.constant:
            found.append("constant, so nothing in it is unusual")
        elif few and not all(short):
            found.append(f"not judged, for the detector judges none before it has seen {warm:,}")
        else:
            found.append(find_alarms(each.values, detector, threshold=threshold, name=f"series '{each.name}'"))
    return found


def _table(source: str) -> tuple[list[str], list[Row], str]:
    """(header of a file, non-empty rows below it with their line numbers, separator of cells)."""
    rows, delimiter = _rows(source)
    if not any(rows[1:]):
        raise CorruptFile(f"'{source}' has no rows below a header; give a CSV file with a column a series")
    if rows[0] and all(_number(cell) is not None or DATE.match(cell) for cell in rows[0]):
        raise CorruptFile(
            f"'{source}' has values alone in its first line ({', '.join(rows[0][:3])}), where names of columns "
            "belong; add a line of names"
        )
    header = [name.strip() or f"column {at}" for at, name in enumerate(rows[0], 1)]
    body = [(number, row) for number, row in enumerate(rows[1:], 2) if row]
    for number, row in body:
        if len(row) != len(header):
            raise CorruptFile(f"'{source}', line {number}: {len(row)} cells, and the header has {len(header)}")
    twin = next((name for name in header if header.count(name) > 1), None)
    if twin is not None:
        raise CorruptFile(f"'{source}' has several columns '{twin}'; give each a name of its own")
    return header, body, delimiter


def _rows(source: str) -> tuple[list[list[str]], str]:
    text = read_text(source)
    if text.lstrip().startswith(("{", "[")):
        raise CorruptFile(f"'{source}' is JSON; give a CSV file with a header, or the output folder of a training job")
    first = text.partition("\n")[0]
    delimiter = next((each for each in DELIMITERS if each in first), ",")
    try:
        return list(csv.reader(io.StringIO(text), strict=True, delimiter=delimiter)), delimiter
    except csv.Error as error:
        raise CorruptFile(f"'{source}' is no CSV file: {error}") from None


def _no_series(name: str, cells: list[str]) -> str | None:
    """Why a column is not a series; None if it is one."""
    first = next((cell for cell in cells if not _missing(cell)), None)
    if first is None:
        return NOTHING
    if not _is_float(first):
        return f"{TEXT}, such as {first!r:.30}"
    known = [number for cell in cells if (number := _number(cell)) is not None]
    whole = len(known) == len(cells) > 2
    if whole and all(before < after for before, after in pairwise(known)):
        return RISES
    if whole and all(before > after for before, after in pairwise(known)):
        return FALLS
    called = _is_called(name, PLACES) or (_is_called(name, TIMES) and known == sorted(known))
    return NAMED if called else None


def _is_called(name: str, names: set[str]) -> bool:
    return name.lower().replace(" ", "_") in names


def _place(cells: Mapping[str, list[str]], why: Mapping[str, str | None]) -> str | None:
    """The column that labels rows: the first that rises, falls or holds dates, else one with such a name; or None."""
    first = next(iter(cells))
    for name, column in cells.items():
        is_place = DATE.match(column[0]) or (name == first and len(set(column)) == len(column))
        if why[name] in (RISES, FALLS) or ((why[name] or "").startswith(TEXT) and is_place):
            return name
    return next((name for name, said in why.items() if said == NAMED), None)


def _check_no_places(
    columns: Iterable[str], place: str | None, cells: Mapping[str, list[str]], why: Mapping[str, str | None]
) -> None:
    """Refuse a named column that labels rows with text, such as dates, and so cannot be judged."""
    for name in columns:
        if (why[name] or "").startswith(TEXT) and (name == place or DATE.match(cells[name][0])):
            raise CorruptFile(
                f"'{name}' tells where rows are, such as {cells[name][0]!r:.40}, and holds no numbers to judge; name "
                "columns of numbers with --column"
            )


def _disorder(name: str, cells: list[str], body: list[Row]) -> str | None:
    """A warning if the cells of the place column fall somewhere; None if they do not, or cannot be compared."""
    numbers = [_number(cell) for cell in cells]
    keys: list[float] | list[str]
    if None not in numbers:
        keys = [number for number in numbers if number is not None]
    elif all(DATE.match(cell) and len(cell) == len(cells[0]) for cell in cells):
        keys = cells
    else:
        return None
    falls = next((at for at, (before, after) in enumerate(pairwise(keys), 1) if after < before), None)  # type: ignore
    if falls is None:
        return None
    return (
        f"rows are not in the order of '{name}': line {body[falls][0]} has {cells[falls]}, and the one above it "
        f"{cells[falls - 1]}; they are judged in the order of the file, so sort them where that is wrong"
    )


def _series(source: str, name: str, cells: list[str], labels: list[str], body: list[Row]) -> NamedSeries:
    values, places, first = list[float](), list[str](), None
    for cell, label, (line, _) in zip(cells, labels, body, strict=True):
        if _missing(cell):
            first = first or ((line, cell) if cell else None)
            continue
        value = _number(cell)
        if value is None:
            raise CorruptFile(
                f"'{source}', line {line}: '{name}' is {cell!r:.80}, which is no finite number up to {LARGEST:g}; "
                "leave the cell empty where there is no value, or name other columns with --column"
            )
        values.append(value)
        places.append(label)
    missing = len(body) - len(values)
    return NamedSeries(name=name, values=tuple(values), labels=tuple(places), missing=missing, first_missing=first)


def _missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _is_float(cell: str) -> bool:
    """Whether a cell is a number, finite or not."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(text: str) -> float | None:
    """The number in a cell, if detectors can score it; else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if is_judged(value) else None
