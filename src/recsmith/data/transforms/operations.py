"""Vectorized transforms of whole blocks; the tests hold a plain version of each, which works sample by sample.

B samples, n ids, m ids that come out
"""

import numpy as np

from recsmith._random import mixed
from recsmith._types import Bools, Ints
from recsmith.data.batch import JaggedIds, Singles
from recsmith.data.transforms.declared import (
    BoxCox,
    Bucketize,
    Calendar,
    Clip,
    First,
    HashIds,
    Log,
    MapIds,
    NGram,
    OneHot,
    ScatterIds,
)
from recsmith.workloads.scattered_rows import scatter

Column = Singles


def ids_of(
    transform: HashIds | ScatterIds | First | NGram | MapIds | Calendar, bags: JaggedIds
) -> tuple[JaggedIds, Bools | None]:
    """(transformed bags of a feature, which of them have no result (B,) or None)."""
    if isinstance(transform, HashIds):
        return _with_values(bags, hashed(bags.values, transform.salt, transform.num_embeddings)), None
    if isinstance(transform, ScatterIds):
        return _scatter(bags, transform.num_embeddings)
    if isinstance(transform, First):
        return _first(bags, transform.count), None
    if isinstance(transform, NGram):
        return _n_grams(bags, transform), None
    if isinstance(transform, Calendar):
        return _with_values(bags, part_of_time(bags.values, transform.part)), None
    return _mapped(bags, transform)


def hashed(values: Ints, salt: int, rows: int) -> Ints:
    """The row of each id (n,): two rounds of SplitMix64's finalizer, modulo `rows`."""
    words = mixed(mixed(values.astype(np.uint64) + np.uint64(salt)) + np.uint64(salt))
    return (words % np.uint64(rows)).astype(np.int64)


def part_of_time(seconds: Ints, part: str) -> Ints:
    """The hour, weekday, day of the month - 1, or month - 1 of times in UTC (n,)."""
    days = seconds // 86_400
    if part == "hour":
        return seconds // 3_600 % 24
    if part == "weekday":
        return (days + 3) % 7  # the first day of 1970 was a Thursday
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if part == "day":
        return (dates - months.astype("datetime64[D]")).astype(np.int64)
    return months.astype(np.int64) % 12


def _scatter(bags: JaggedIds, rows: int) -> tuple[JaggedIds, Bools | None]:
    """(bags with permuted rows, which bags hold an id that is no row (B,) or None)."""
    known = (bags.values >= 0) & (bags.values < rows)
    made = _with_values(bags, scatter(np.where(known, bags.values, 0), rows))
    if known.all():
        return made, None
    bag = np.repeat(np.arange(len(bags.lengths)), bags.lengths)
    return made, np.bincount(bag[~known], minlength=len(bags.lengths)) > 0


def _with_values(bags: JaggedIds, values: Ints) -> JaggedIds:
    return JaggedIds(values=values, lengths=bags.lengths, weights=bags.weights)


def _first(bags: JaggedIds, count: int) -> JaggedIds:
    if len(bags.lengths) == 0 or int(bags.lengths.max()) <= count:
        return bags
    kept = positions(bags.lengths) < count
    weights = None if bags.weights is None else bags.weights[kept]
    return JaggedIds(
        values=bags.values[kept], lengths=np.minimum(bags.lengths, count).astype(np.int32), weights=weights
    )


def positions(lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> Ints:
    """The position of each id in its bag, counted from 0 (n,)."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _n_grams(bags: JaggedIds, transform: NGram) -> JaggedIds:
    """Hash each run of `length` ids: starting from the salt, each id is added to the word, which is then mixed."""
    lengths = np.maximum(bags.lengths - (transform.length - 1), 0).astype(np.int32)
    begins = np.repeat(np.cumsum(bags.lengths, dtype=np.int64) - bags.lengths, lengths) + positions(lengths)
    words = np.full(len(begins), transform.salt, np.uint64)
    for place in range(transform.length):
        words = mixed(words + bags.values[begins + place].astype(np.uint64))
    return JaggedIds(values=(words % np.uint64(transform.num_embeddings)).astype(np.int64), lengths=lengths)


def _mapped(bags: JaggedIds, transform: MapIds) -> tuple[JaggedIds, Bools | None]:
    known = np.array(transform.ids, np.int64)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known, bags.values, sorter=order), len(known) - 1)
    found = order[at]
    is_known = known[found] == bags.values
    made = _with_values(bags, np.where(is_known, found + 1, 0))
    if transform.unknown == "zero" or is_known.all():
        return made, None
    wrong = np.zeros(len(bags.lengths), np.bool_)
    wrong[np.repeat(np.arange(len(bags.lengths)), bags.lengths)[~is_known]] = True
    return made, wrong


def bucket(transform: Bucketize, column: Column) -> tuple[JaggedIds, Bools | None]:
    """(bags of one id, which samples have no result (B,) or None) of a dense column (B,)."""
    borders = np.array(transform.borders, np.float64)
    values = np.searchsorted(borders, column.astype(np.float64), side="right").astype(np.int64)
    return JaggedIds(values=values, lengths=np.ones(len(column), np.int32)), _wrong(np.isnan(column))


def dense_of(transform: Clip | Log | BoxCox | OneHot, column: Column) -> tuple[list[Column], Bools | None]:
    """(columns made of a dense column (B,), which samples have no result (B,) or None)."""
    values = column.astype(np.float64)
    if isinstance(transform, Clip):
        return [_single(np.clip(values, transform.least, transform.most))], _wrong(np.isnan(values))
    if isinstance(transform, OneHot):
        return [_single(values == np.float32(value)) for value in transform.values], _wrong(np.isnan(values))
    least = -1.0 if isinstance(transform, Log) else 0.0
    wrong = ~(values > least)
    values = np.where(wrong, least + 1.0, values)
    if isinstance(transform, Log):
        made = np.log1p(values)
    else:
        power = transform.power
        made = np.expm1(power * np.log(values)) / power if power else np.log(values)
    wrong |= ~np.isfinite(_single(made))
    return [_single(np.where(wrong, 0.0, made))], _wrong(wrong)


def _single(values: "np.ndarray[tuple[int], np.dtype[np.float64]] | Bools") -> Column:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _wrong(mask: Bools) -> Bools | None:
    return mask if mask.any() else None
