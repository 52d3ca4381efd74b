"""What a row of a journal must be: the columns of its kind, each of its type, length and range.

The same rules hold for parts (part_checks.py), where whole columns are checked at once.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from recsmith.files import did_you_mean
from recsmith.measuring.about import About
from recsmith.measuring.columns import (
    ABOVE_ZERO,
    COLUMNS,
    LARGEST,
    LEAST_S,
    LONGEST_TEXT,
    WORDS,
    Column,
    MeasurementKind,
)
from recsmith.measuring.journal import Check, Row

BEGIN = "begin"  # the field of a note of what is measured next


def line_check(about: About) -> Check:
    """What checks the lines of a folder's journal, one after the other: positions rise."""
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
    """What is wrong with the values of a row, in words; '' where nothing is. Columns may be missing (`missing`)."""
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
    """The first of the names whose column a row must have and does not; '' where it has all."""
    known = _columns(kind)
    return next((name for name in names if row.get(name) is None and not known[name].may_be_empty), "")


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
    if not rule and column.name in WORDS and value not in WORDS[column.name]:
        rule = f"one of {', '.join(WORDS[column.name])}"
    if not rule and column.items == "float64" and column.unit == "s":
        may_be_zero = column.name not in ABOVE_ZERO or row.get("status", "ok") != "ok"
        numbers = cast(list[float], values)
        is_long = all(each >= LEAST_S or (each == 0 and may_be_zero) for each in numbers)
        rule = "" if is_long else f"at least {LEAST_S:g} s"
    return f"{column.name} must be {rule}" if rule else ""


def _has_length(length: tuple[int, str], found: int, row: Row) -> bool:
    """Whether a list is as long as its row says; what was not measured may be empty."""
    times, counted = length
    count = row.get(counted)
    return (
        count is None or (type(count) is int and found == times * count) or (found == 0 and row.get("status") != "ok")
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


_RULES: dict[str, tuple[tuple[str, Callable[[Any], bool]], ...]] = {
    "int64": (("a whole number from 0 to 2^53", _is_count),),
    "float64": (("a finite number from 0 to 2^53", _is_number),),
    "string": ((f"text of at most {LONGEST_TEXT:,} characters", _is_text),),
    "bool": (("true or false", lambda value: isinstance(value, bool)),),
}
