"""Checks the rows of a journal and the columns of parts: known columns, each of its type, length and range.

A part is checked before its data is read (size, and columns as documented) and after it. The rules for values are the
same as for rows, applied to whole columns.

Legend: N rows, V values of all rows.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from recsmith._types import Floats
from recsmith.files import did_you_mean
from recsmith.measuring.about import About
from recsmith.measuring.columns import (
    ABOVE_ZERO,
    ADDED,
    ALLOWED,
    COLUMNS,
    LARGEST,
    LEAST,
    LEAST_S,
    LONGEST_TEXT,
    Column,
    MeasurementKind,
)
from recsmith.measuring.journal import Check, Row

BEGIN = "begin"  # the field of a note that says which position is measured next


def line_check(about: About) -> Check:
    """A function that checks the lines of a folder's journal, one after the other: positions must increase."""
    last = -1

    def check(line: Row) -> str:
        nonlocal last
        if BEGIN in line:
            whole = len(line) == 1 and type(line[BEGIN]) is int and -1 <= line[BEGIN] < LARGEST
            return "" if whole else f"'{BEGIN}' is no position, or does not stand alone"
        trouble = row_trouble(line, about)
        if trouble:
            return trouble
        if line["position"] <= last:
            return f"position {line['position']} comes after position {last}"
        last = line["position"]
        return ""

    return check


def row_trouble(row: Row, about: About) -> str:
    """What is wrong with the values of a row, in words; '' if nothing is. Columns may be missing (`missing`)."""
    known = _columns(about.kind)
    if row.get("position") is None:
        return "it has no position"
    for name, value in row.items():
        if name not in known:
            return f"'{name[:80]}' is not a known column{did_you_mean(name, list(known))}"
        trouble = _trouble(known[name], value, row)
        if trouble:
            return trouble
    if row.get("ranks", about.ranks) != about.ranks and about.kind == "comm":
        return f"ranks is {row['ranks']}, in a folder of {about.ranks} ranks"
    return ""


def missing(row: Row, kind: MeasurementKind, names: Any) -> str:
    """The first of the named columns whose value a row must have and lacks; '' if there is none."""
    known = _columns(kind)
    needed = (name for name in names if not known[name].may_be_empty and (name not in ADDED or name in row))
    return next((name for name in needed if row.get(name) is None), "")


@cache
def _columns(kind: MeasurementKind) -> dict[str, Column]:
    return {column.name: column for column in COLUMNS[kind]}


def _trouble(column: Column, value: object, row: Row) -> str:
    if value is None:
        return ""
    values = cast(list[object], value) if column.length and isinstance(value, list) else [value]
    if column.length and not isinstance(value, list):
        return f"{column.name} is no list"
    if column.length and not _has_length(column.length, len(values), row):
        return f"{column.name} has {len(values):,} values, which is not one for each of its {column.length[1]}"
    rule = next((rule for rule, holds in _RULES[column.items] if not all(map(holds, values))), "")
    if not rule and column.name in ALLOWED and value not in ALLOWED[column.name]:
        rule = f"one of {', '.join(ALLOWED[column.name])}"
    if not rule and column.name in LEAST and cast(int, value) < LEAST[column.name]:
        rule = f"at least {LEAST[column.name]}"
    if not rule and column.items == "float64" and column.unit == "s":
        may_be_zero = column.name not in ABOVE_ZERO or row.get("status", "ok") != "ok"
        numbers = cast(list[float], values)
        is_long = all(each >= LEAST_S or (each == 0 and may_be_zero) for each in numbers)
        rule = "" if is_long else f"at least {LEAST_S:g} s"
    return f"{column.name} must be {rule}" if rule else ""


def _has_length(length: tuple[int, str], found: int, row: Row) -> bool:
    """Whether a list has the length that its row states; if the measurement failed, it may be empty."""
    times, counted = length
    count = row.get(counted)
    return (
        count is None or (type(count) is int and found == times * count) or (found == 0 and row.get("status") != "ok")
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < LARGEST  # NaN fails this


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


_RULES: dict[str, tuple[tuple[str, Callable[[Any], bool]], ...]] = {
    "int64": (("a whole number from 0 to 2^53", _is_count),),
    "float64": (("a finite number from 0 to 2^53", _is_number),),
    "string": ((f"text of at most {LONGEST_TEXT:,} characters", _is_text),),
    "bool": (("true or false", lambda value: isinstance(value, bool)),),
}


MOST_VALUES = 2**25  # values of all read columns, lists flattened: ten times 50,000 rows of ordinary cases
MOST_BYTES = 2**28  # bytes of these columns, decompressed


def size_trouble(metadata: Any, names: Sequence[str], most_rows: int) -> str:
    """Why a part is too large to be read, from its metadata alone; '' if it is not. most_rows: by its name."""
    if metadata.num_rows > most_rows:
        return f"it has {metadata.num_rows:,} rows, its name says at most {most_rows:,}"
    values = size = 0
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(at)
            if chunk.path_in_schema.partition(".")[0] in names:
                values, size = values + chunk.num_values, size + chunk.total_uncompressed_size
    if values > MOST_VALUES or size > MOST_BYTES:
        return f"{values:,} values of {size:,} bytes are more than the {MOST_VALUES:,} of {MOST_BYTES:,} that are read"
    return ""


def schema_trouble(found: Any, wanted: Any) -> str:
    """The first column that is missing, unknown, twice, or of another type; '' if none is. ADDED ones are optional."""
    for name in wanted.names:
        if name not in found.names and name in ADDED:
            continue
        if name not in found.names:
            return f"it has no column '{name}'"
        if found.names.count(name) > 1:
            return f"it has column '{name}' twice"
        if found.field(name).type != wanted.field(name).type:
            return f"column '{name}' is {found.field(name).type}, not {wanted.field(name).type}"
    unknown = next((name for name in found.names if name not in wanted.names), None)
    return "" if unknown is None else f"column '{unknown}' is not known"


def needed_columns(kind: MeasurementKind, names: Sequence[str]) -> list[str]:
    """The columns to be read, and those that check them: position, status, and the lengths of lists."""
    columns = {column.name: column for column in COLUMNS[kind]}
    counted = {length[1] for name in names if (length := columns[name].length)}
    ranks = {"ranks"} if kind == "comm" else set[str]()
    return list(dict.fromkeys([*names, "position", "status", *sorted(counted | ranks)]))


def values_trouble(table: Any, about: About, first: int, last: int) -> str:
    """What is wrong with the values of a part's columns, in words; '' if nothing is. first, last: positions."""
    ok = np.array(table["status"].to_pylist()) == "ok"
    counts = {name: table[name].to_numpy() for name in ("tables", "ranks") if name in table.column_names}
    for column in COLUMNS[about.kind]:
        if column.name in table.column_names:
            trouble = _column_trouble(column, table[column.name], ok, counts)
            if trouble:
                return f"{column.name} {trouble}"
    position = table["position"].to_numpy()
    if len(position) and not (first <= position[0] and position[-1] <= last and (np.diff(position) > 0).all()):
        return f"positions do not rise from {first} to {last}"
    if about.kind == "comm" and (counts["ranks"] != about.ranks).any():
        return f"ranks is not {about.ranks} in each row"
    return ""


def empty_trouble(table: Any, kind: MeasurementKind) -> str:
    """The first column that has no value although each row must have one, as a sentence; '' if there is none."""
    empty = [column.name for column in COLUMNS[kind] if column.name in table.column_names and not column.may_be_empty
             and table[column.name].null_count]  # fmt: skip
    return f"{empty[0]} is empty in some row" if empty else ""


def _column_trouble(column: Column, data: Any, ok: Any, counts: dict[str, Any]) -> str:
    values = data.combine_chunks()
    if column.length:
        times, counted = column.length
        lengths = values.value_lengths().to_numpy()
        if not ((lengths == times * counts[counted]) | (~ok & (lengths == 0))).all():
            return f"has not as many values as the row has {counted}"
        values = values.flatten()
        if values.null_count:
            return "holds empty values"
    if column.items == "string":
        return _text_trouble(column, values)
    if column.items == "bool":
        return ""
    filled = values.drop_null() if values.null_count else values
    return _numbers_trouble(column, filled.to_numpy(zero_copy_only=False), bool(ok.all()))


def _numbers_trouble(column: Column, numbers: Floats, all_ok: bool) -> str:
    """What is wrong with numbers (V,). all_ok: whether no row failed; seconds of failed rows may be 0."""
    if not len(numbers):
        return ""
    if not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.max() < LARGEST):
        return "must be finite, and from 0 to 2^53"
    if numbers.min() < LEAST.get(column.name, 0):
        return f"must be at least {LEAST[column.name]}"
    if column.unit != "s" or column.items != "float64":
        return ""
    short = numbers[numbers < LEAST_S]
    may_be_zero = column.name not in ABOVE_ZERO or not all_ok
    return "" if (may_be_zero and not short.any()) or not len(short) else f"must be at least {LEAST_S:g} s"


def _text_trouble(column: Column, values: Any) -> str:
    texts: list[Any] = values.unique().to_pylist() if len(values) else []
    if any(text is not None and len(text) > LONGEST_TEXT for text in texts):
        return f"holds text of more than {LONGEST_TEXT:,} characters"
    known = ALLOWED.get(column.name)
    odd = next((text for text in texts if known and text not in known), None)
    return "" if odd is None or known is None else f"is '{odd[:80]}', none of {', '.join(known)}"
