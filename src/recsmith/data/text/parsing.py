"""Parses lines of CSV and JSON into pyarrow tables; a row that cannot be parsed is null and reported as a fault.

n lines of a block
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from recsmith._types import Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.domain import Faults
from recsmith.errors import CorruptFile

SHOWN = 60  # characters of a line that an error shows
BOOLEANS = {"true": 1.0, "false": 0.0}  # as pandas, Spark and JSON write them
Types = Mapping[str, Any]  # pyarrow type by column name


def csv_table(
    text: bytes, rows: int, names: Sequence[str], types: Types, *, delimiter: str, nulls: Sequence[str], place: str
) -> tuple[Any, Faults]:
    """(table, faults) of CSV lines without a header.

    rows: number of rows in the text. names: names of all columns. types: pyarrow types of the columns to read. nulls:
    texts that stand for a missing value. place: where the text is from, for errors.

    Raises:
        CorruptFile: the text is not UTF-8.
    """
    try:
        return _csv(text, rows, names, types, delimiter, nulls)
    except pyarrow().ArrowInvalid:  # a value is no number, or the text is not UTF-8
        texts = dict.fromkeys(types, pyarrow().string())
    try:
        table, faults = _csv(text, rows, names, texts, delimiter, nulls)
    except pyarrow().ArrowInvalid as error:
        raise CorruptFile(f"{place} cannot be read as CSV in UTF-8: {str(error).splitlines()[0]}; mend it") from None
    columns = {name: _converted(table[name], kind, name, faults) for name, kind in types.items()}
    return pyarrow().table(columns), faults


def _csv(
    text: bytes, rows: int, names: Sequence[str], types: Types, delimiter: str, nulls: Sequence[str]
) -> tuple[Any, Faults]:
    arrow, wrong = pyarrow(), dict[int, str]()

    def skip(row: Any) -> str:
        columns = row.actual_columns
        wrong[row.number - 1] = f"has {columns} column{'s' * (columns != 1)}, not {len(names)}: {row.text[:SHOWN]!r}"
        return "skip"

    csv: Any = arrow.csv
    table = csv.read_csv(
        io.BytesIO(text),
        csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(names)),
        csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=skip
        ),
        csv.ConvertOptions(
            column_types=dict(types), include_columns=list(types), null_values=list(nulls), strings_can_be_null=True
        ),
    )
    return _with_gaps(table, rows, wrong, "another number of columns")


def json_table(text: bytes, rows: int, types: Types, place: str) -> tuple[Any, Faults]:
    """(table, faults) of JSON lines. types: pyarrow types of the columns to read; None: inferred from the values.

    Raises:
        CorruptFile: a column holds values of several kinds.
    """
    arrow = pyarrow()
    known = arrow.schema([(name, kind) for name, kind in types.items() if kind is not None])
    try:
        options = arrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = arrow.json.read_json(io.BytesIO(text), options, arrow.json.ParseOptions(explicit_schema=known))
        if table.num_rows == rows:
            there = set(table.column_names)
            return arrow.table({name: table[name] if name in there else arrow.nulls(rows) for name in types}), Faults()
    except arrow.ArrowInvalid:
        pass  # parse line by line, to find the lines that are wrong
    return _json_lines(text, rows, types, place)


def _json_lines(text: bytes, rows: int, types: Types, place: str) -> tuple[Any, Faults]:
    arrow, found, wrong = pyarrow(), list[dict[str, Any]](), dict[int, str]()
    for at, line in enumerate(text.split(b"\n")[:rows]):
        try:
            read: Any = json.loads(line)
        except ValueError:
            read = None
        if isinstance(read, dict):
            found.append(cast(dict[str, Any], read))
        else:
            wrong[at] = f"is no object of JSON: {line[:SHOWN]!r}"
    table, faults = {}, Faults()
    for name, kind in types.items():
        values = [each.get(name) for each in found]
        try:
            table[name] = arrow.array(values) if kind is None else arrow.array(values, kind)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError) as error:
            if kind is None:
                raise CorruptFile(f"{place}: column '{name}' holds values of several kinds ({error})") from None
            table[name] = _converted(arrow.array([_text(each) for each in values]), kind, name, faults)
    made, gaps = _with_gaps(arrow.table(table), rows, wrong, "no object")
    kept = np.flatnonzero(~_any(gaps, rows))
    for cause, (mask, said) in faults.items():
        whole = np.zeros(rows, np.bool_)
        whole[kept] = mask
        gaps[cause] = whole, said
    return made, gaps


def _text(value: object) -> str | None:
    return None if value is None else value if isinstance(value, str) else json.dumps(value)


def _any(faults: Faults, rows: int) -> Any:
    return np.logical_or.reduce([mask for mask, _ in faults.values()]) if faults else np.zeros(rows, np.bool_)


def _with_gaps(table: Any, rows: int, wrong: Mapping[int, str], what: str) -> tuple[Any, Faults]:
    """(table, faults): the table with a row of nulls for each wrong line. wrong: by row, what is wrong."""
    if len(wrong) + table.num_rows != rows:
        wrong = {**wrong, **{rows - 1 - at: "is missing" for at in range(rows - table.num_rows - len(wrong))}}
    if not wrong:
        return table, Faults()
    mask = np.zeros(rows, np.bool_)
    mask[list(wrong)] = True
    places: Ints = np.cumsum(~mask) - 1
    return table.take(pyarrow().array(places, mask=mask)), {f"lines with {what}": (mask, wrong[min(wrong)])}


def _converted(column: Any, kind: Any, name: str, faults: Faults) -> Any:
    """A text column parsed as numbers; a text that is no number becomes null and is added to the faults."""
    arrow = pyarrow()
    if arrow.types.is_string(kind):
        return column
    whole = bool(arrow.types.is_integer(kind))
    values: list[Any] = column.to_pylist()
    read = [None if value is None else _number(value, whole) for value in values]
    if whole and any(each is not None and each < 0 for each in read):  # no type holds both < 0 and >= 2^63
        read = [None if each is None or each >= 2**63 else each for each in read]
    wrong = np.array([each is None and value is not None for each, value in zip(read, values, strict=True)], np.bool_)
    if wrong.any():
        first = column[int(wrong.argmax())].as_py()
        said = (
            f"has {first[:SHOWN]!r} in column '{name}', which is no {'whole number of 64 bits' if whole else 'number'}"
        )
        faults[f"rows without a number in '{name}'"] = wrong, said
    wide = whole and max((each for each in read if each is not None), default=0) >= 2**63
    return arrow.array(read, arrow.uint64() if wide else kind)


def _number(text: str, whole: bool) -> int | float | None:
    """The number in a text (true: 1, false: 0); None if it is no number. whole: 42 and 42.0 are numbers, 4.2 is not."""
    if not whole:
        return BOOLEANS[text.lower()] if text.lower() in BOOLEANS else _read(float, text)
    found = _read(int, text)
    if found is None:
        near = _read(float, text)
        found = int(near) if near is not None and near.is_integer() and abs(near) < 2**53 else None
    return found if found is not None and -(2**63) <= found < 2**64 else None


def _read(reader: Callable[[str], Any], text: str) -> Any:
    try:
        return reader(text)
    except ValueError:
        return None
