"""Guesses what the columns of a table hold from some thousand rows; people correct the guess."""

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

from recsmith._types import noun
from recsmith.data.arrow import pyarrow
from recsmith.data.columns.times import are_times

SHOWN, SHOWN_TEXT = 3, 32  # values shown of a column, and characters shown of each value
SEPARATORS = ("|", ";", ",")
LABELS = ("label", "labels", "target", "y", "click", "clicked", "is_click", "liked", "converted", "rating", "stars")
TIMES = re.compile(r"(^|_)(time|timestamp|date|ts|when|at)($|_)|time$|date$", re.IGNORECASE)
SECONDS = (5e8, 5e9)  # numbers taken for seconds since 1970: the years 1985 to 2128
A_MILLISECOND = 1e-3  # in seconds
EXACT = 2.0**53  # a float holds every whole number below this exactly
SPARSE = 100  # range / number of different values, from which numbers common to two columns are no coincidence
SKEWED = 100  # largest value / median, above which the logarithm of a column is the better input

Kind = Literal["value", "list", "text list", "time", "number", "nothing"]


@noun
class LookedColumn:
    """A column: the kind of its values, how many are different, the first ones, and the separator of values in a text.

    kind: `value`: ids or texts, which need a vocabulary; `text list`: texts of several values with a separator; `list`:
    a list of values in each row; `time`: seconds or text; `number`: a dense value; `nothing`: no use as a feature, as
    values are all different or cannot be read. why: the reason for `nothing`, if it is the column's type or values.
    zero_one: whether all values are 0 or 1. skewed: whether the logarithm is the better input.
    """

    name: str
    kind: Kind
    distinct: int
    shown: tuple[str, ...] = ()
    separator: str | None = None
    why: str = ""
    zero_one: bool = False
    skewed: bool = False
    least: float | None = None
    most: float | None = None
    values: Any = field(default=None, repr=False, compare=False)  # pyarrow array of the different values

    @property
    def milliseconds(self) -> bool:
        """Whether this is a column of times in milliseconds."""
        return self.kind == "time" and self.least is not None and self.least > SECONDS[1]


def looked_at(table: Any) -> tuple[LookedColumn, ...]:
    """Guess what each column holds. table: a pyarrow table of the data's first rows."""
    return tuple(_look(name, table[name].combine_chunks()) for name in table.column_names)


def shared_ids(columns: Sequence[LookedColumn]) -> dict[str, str]:
    """By column name, another column with ids or texts of the same things, such as a list of seen items and the item.

    The columns must share at least half of the values of the one with fewer. Numbers from a dense range are not
    compared, because they coincide by chance.
    """
    found: dict[str, str] = {}
    known: list[tuple[str, set[Any]]] = []
    for each in sorted(columns, key=lambda each: each.kind != "value"):
        values = set(each.values.to_pylist()) if each.kind in ("value", "list", "text list") else set[Any]()
        if len(values) < 2 or not _tell_things(values):
            continue
        same = (name for name, others in known if 2 * len(values & others) >= min(len(values), len(others)))
        if (first := next(same, None)) is not None:
            found[each.name] = first
        else:
            known.append((each.name, values))
    return found


def _tell_things(values: set[Any]) -> bool:
    """Whether values are all texts, or whole numbers from a range at least SPARSE times as large as their number."""
    if all(isinstance(each, int) for each in values):
        return max(values) - min(values) >= SPARSE * len(values)
    return all(isinstance(each, str) for each in values)


def guessed_label(columns: Sequence[LookedColumn]) -> str | None:
    """The probable label: a column with a label's name, or the only column of 0 and 1; None if there is neither."""
    named = [each.name for word in LABELS for each in columns if each.name.lower() == word and each.most is not None]
    binary = [each.name for each in columns if each.zero_one]
    return named[0] if named else binary[0] if len(binary) == 1 else None


def _look(name: str, column: Any) -> LookedColumn:
    types, kind = pyarrow().types, column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        values = column.flatten()
        found = _look(name, values)
        of_ids = found.kind == "value" or (found.kind == "nothing" and not found.why)
        return _made(name, values, "list" if of_ids else "nothing", why="" if of_ids else f"it holds {kind}, no ids")
    values = column.drop_null()
    if types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if types.is_null(kind) or not len(values):
        return LookedColumn(name=name, kind="nothing", distinct=0)
    if types.is_map(kind) or types.is_struct(kind):
        held = "maps" if types.is_map(kind) else "structs"
        why = f"it holds {held}; of Parquet a feature reads one `key` of them (docs/data.md)"
        return LookedColumn(name=name, kind="nothing", distinct=0, why=why)
    if types.is_temporal(kind):
        return _made(name, values, "time")
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return _look_at_numbers(name, values, bool(column.null_count))
    return _look_at_text(name, values)


def _look_at_numbers(name: str, values: Any, gaps: bool) -> LookedColumn:
    """Guess what a numeric column holds. gaps: whether it has nulls, because of which pandas stores ints as floats."""
    arrow = pyarrow()
    as_float = values.cast(arrow.float64(), safe=False)
    if odd := arrow.compute.sum(arrow.compute.invert(arrow.compute.is_finite(as_float))).as_py():
        why = f"{odd:,} of {len(values):,} values are NaN or infinite, and such rows are corrupt; write null for them"
        return LookedColumn(name=name, kind="nothing", distinct=0, why=why)
    whole = arrow.types.is_integer(values.type) or (gaps and _are_whole(as_float))
    span = arrow.compute.min_max(as_float).as_py()
    least, most = float(span["min"]), float(span["max"])
    figures = {"least": least, "most": most, "zero_one": {least, most} <= {0.0, 1.0} and len(values.unique()) <= 2}
    units = (1, A_MILLISECOND) if whole else (1,)
    if TIMES.search(name) and any(SECONDS[0] < least * unit and most * unit < SECONDS[1] for unit in units):
        return _made(name, values, "time", **figures)
    if whole:
        return _made(
            name, values if arrow.types.is_integer(values.type) else as_float.cast("int64"), "value", **figures
        )
    median = float(arrow.compute.quantile(as_float, 0.5)[0].as_py())
    skewed = least >= 0 and most > SKEWED * max(median, 1e-9)
    return _made(name, values, "number", skewed=skewed, **figures)


def _are_whole(values: Any) -> bool:
    """Whether all floats are whole numbers below EXACT."""
    arrow = pyarrow()
    exact = arrow.compute.less(arrow.compute.abs(values), EXACT)
    same = arrow.compute.equal(values, arrow.compute.floor(values))
    return bool(arrow.compute.all(arrow.compute.and_(exact, same)).as_py())


def _look_at_text(name: str, values: Any) -> LookedColumn:
    arrow = pyarrow()
    if not (arrow.types.is_string(values.type) or arrow.types.is_large_string(values.type)):
        return LookedColumn(name=name, kind="nothing", distinct=0, why=f"it holds {values.type}; cast it to text")
    if are_times(values):
        return _made(name, values, "time")
    for separator in SEPARATORS:
        parts = arrow.compute.list_flatten(arrow.compute.split_pattern(values, separator))
        several = arrow.compute.sum(arrow.compute.match_substring(values, separator)).as_py() or 0
        if several > len(values) // 4 and len(parts.unique()) < len(values.unique()):
            return _made(name, parts, "text list", separator=separator)
    distinct = len(values.unique())
    return _made(name, values, "nothing" if distinct == len(values) > 100 else "value")


def _made(name: str, values: Any, kind: Kind, **words: Any) -> LookedColumn:
    distinct = values.drop_null().unique()
    shown = tuple(_printable(str(each)[:SHOWN_TEXT]) for each in distinct.slice(0, SHOWN).to_pylist())
    return LookedColumn(name=name, kind=kind, distinct=len(distinct), shown=shown, values=distinct, **words)


def _printable(text: str) -> str:
    """A text with unprintable characters, such as line ends, replaced by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
