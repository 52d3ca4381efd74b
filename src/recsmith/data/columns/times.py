"""Reads columns of times: text, timestamps, dates, and numbers of seconds or milliseconds since 1970."""

from typing import Any

import numpy as np

from recsmith.data.arrow import pyarrow
from recsmith.errors import CorruptFile

YEAR_10000 = 253_402_300_800  # seconds since 1970; a larger number must be in another unit
# (unit, zone) tried in turn to parse a text as a time: for fractions of a second, and for offsets such as +02:00
TEXTS = (("us", None), ("us", "UTC"), ("ns", None), ("ns", "UTC"))
SHOWN = 60  # characters that an error shows of a text that is no time


def seconds_of(values: Any, what: str, each: int = 1) -> Any:
    """Times as whole seconds since 1970, from values without nulls.

    what: where the values are from, for errors. each: units per second, such as 1,000 for milliseconds.

    Raises:
        CorruptFile: a value is no time, or a number is in another unit.
    """
    arrow = pyarrow()
    if arrow.types.is_null(values.type):
        return values
    found = _whole(values, what)
    if found is None:
        return _micros(values, what, 10**6)
    latest = int(found.max(initial=0))
    if latest // each >= YEAR_10000:
        fix = "give `ids: milliseconds`" if each == 1 and latest // 1000 < YEAR_10000 else "write it as a timestamp"
        unit = "seconds" if each == 1 else "milliseconds"
        raise CorruptFile(f"{what} holds {latest}, which in {unit} is after the year 9999; {fix}")
    return arrow.array(found // each)


def micros_of(values: Any, what: str) -> Any:
    """Times as numbers to sort by: microseconds since 1970, but numbers unchanged; errors as in `seconds_of`."""
    found = _whole(values, what)
    return _micros(values, what, 1) if found is None else pyarrow().array(found)


def are_times(values: Any) -> bool:
    """Whether all texts are times."""
    return _parsed(values)[0] is not None


def _whole(values: Any, what: str) -> Any:
    """Numbers, or texts that are all numbers, as integers, rounded down; None for anything else."""
    arrow = pyarrow()
    kind = values.type
    if arrow.types.is_integer(kind):
        return values.to_numpy(zero_copy_only=False).astype(np.int64)
    if _are_texts(kind):
        numbers = arrow.compute.all(arrow.compute.match_substring_regex(values, r"^-?[0-9]{1,18}(\.[0-9]*)?$")).as_py()
        if not numbers:
            return None
        values = arrow.compute.replace_substring_regex(values, r"\.[0-9]*$", "")
        return values.cast(arrow.int64()).to_numpy(zero_copy_only=False)
    if not arrow.types.is_floating(kind):
        return None
    wide = values.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    if not (np.abs(wide) < 2**62).all():
        raise CorruptFile(f"{what} holds {wide[~(np.abs(wide) < 2**62)][0]}, which is no time")
    return np.floor(wide).astype(np.int64)


def _micros(values: Any, what: str, each: int) -> Any:
    """Timestamps, dates and texts of times in units of `each` microseconds since 1970, rounded down."""
    arrow = pyarrow()
    found, problem = _parsed(values) if _are_texts(values.type) else (values, "")
    try:
        if found is None or not (arrow.types.is_timestamp(found.type) or arrow.types.is_date(found.type)):
            raise CorruptFile(
                f"{what} holds something that is no time: {problem or values.type}; a time is 2009-12-14 02:52:24, "
                "with an offset such as Z or +02:00 where it is not of UTC, in one way in all rows"
            )
        kind = arrow.timestamp("us", getattr(found.type, "tz", None))
        rounded = arrow.compute.CastOptions(kind, allow_time_truncate=True)
        micros = arrow.compute.cast(found, options=rounded).cast(arrow.int64())
    except arrow.ArrowInvalid as error:
        raise CorruptFile(f"{what} holds a time that is out of range: {error}") from None
    return micros if each == 1 else arrow.array(micros.to_numpy(zero_copy_only=False) // each)


def _parsed(values: Any) -> tuple[Any, str]:
    """(texts as timestamps, ''); or, if a text is no time, (None, that text in quotes)."""
    arrow = pyarrow()
    for unit, zone in TEXTS:
        try:
            return values.cast(arrow.timestamp(unit, zone)), ""
        except arrow.ArrowInvalid:
            continue
    return None, f"'{next((text for text in values.to_pylist() if not _is_time(text)), values[0].as_py())[:SHOWN]}'"


def _is_time(text: str) -> bool:
    """Whether a single text is a time."""
    arrow = pyarrow()
    for unit, zone in TEXTS:
        try:
            arrow.scalar(text).cast(arrow.timestamp(unit, zone))
        except arrow.ArrowInvalid:
            continue
        return True
    return False


def _are_texts(kind: Any) -> bool:
    types = pyarrow().types
    return types.is_string(kind) or types.is_large_string(kind)
