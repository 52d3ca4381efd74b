"""Forecasts the rows that a longer stream needs from its beginning, by a law of its ids, with an interval of the error.

The rows that the beginning needs, as counted, are multiplied by two factors. The law gives the factor by which rows
grow with the length of the stream. If the second half of the beginning needs more rows than the first, streams of equal
length need more rows over time, too, and the rows also grow by this trend.
"""

import math

import numpy as np

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.streaming.capacity.drawn import drawn
from recsmith.streaming.capacity.fitting import fit, seen
from recsmith.streaming.capacity.id_sample import GROUPS, Sampled
from recsmith.streaming.capacity.law import IdLaw, LawFit
from recsmith.streaming.capacity.reads import DEVIATIONS, TableReads

DRAWN = 2**17  # lookups of a stream drawn from the law
TRIED = 4  # as a test, the rows of the beginning are forecast from the first of this many parts of it
HALVES = math.log(3)  # log of the ratio of the midpoints of two halves, 3/4 and 1/4
FEW_ROWS = 30  # least number of rows from which a trend is computed
STEADY = 0.02  # a trend below it is ignored, since the error of laws is as large


@noun
class Forecast:
    """Forecast of the rows that a stream of `lookups` lookups needs, of which only the beginning was read.

    distinct: number of different ids. rows: by policy. low, high: bounds of the interval as multiples of the rows; its
    width follows from forecasts of groups of ids, and of the beginning itself. off: mean relative error of the law.
    trend: exponent of time by which streams of equal length need more rows, besides the law. tried: rows forecast for
    the beginning from its first quarter / rows that it needs; None if the quarter is too short. law: None if no new id
    occurred in the second half, so that rows do not grow.
    """

    lookups: int
    distinct: float
    rows: dict[str, float]
    low: float
    high: float
    off: float
    trend: float
    tried: float | None
    law: IdLaw | None


def forecast(
    sampled: Sampled, lookups: int, policies: tuple[str, ...], *, serve: float, admit: int = 1
) -> Forecast:  # fmt: skip
    """Forecast the rows that a longer stream needs.

    Args:
        sampled: the beginning of the stream.
        lookups: length of the whole stream.
        policies: eviction policies.
        serve: share of what an unbounded table serves that the rows should serve.
        admit: how often an id must have been seen to get a row.

    Raises:
        UsageError: the stream is no longer than its beginning, or has too few different ids.
    """
    if lookups <= sampled.lookups:
        raise UsageError(
            f"a stream of {lookups:,} lookups is no longer than the {sampled.lookups:,} that were read; name more"
        )
    now = TableReads(sampled, admit)
    if TableReads(sampled.first(sampled.lookups // 2)).distinct == TableReads(sampled).distinct:
        return _all_here(now, lookups, policies, serve)
    made = fit(seen(sampled))
    trend, spread = _trend(sampled, serve), _spread(sampled, lookups, made.law, serve)
    longer = (lookups / sampled.lookups) ** trend
    rows = {
        policy: now.rows(policy, serve) * longer * growth(made.law, (sampled.lookups, lookups), policy, serve, admit)
        for policy in policies
    }
    tried = _tried(sampled, now, serve)
    if tried is not None:
        spread = math.hypot(spread, math.log(tried) * math.log(lookups / sampled.lookups) / math.log(TRIED))
    first, last = made.law.distinct(np.array([sampled.lookups, lookups], dtype=np.float64)).tolist()
    ids = min(TableReads(sampled).distinct * last / first * longer, float(lookups))
    rows = {policy: min(max(each, 1.0), max(ids, 1.0)) for policy, each in rows.items()}
    return Forecast(
        lookups=lookups, distinct=ids, rows=rows, low=math.exp(-spread), high=math.exp(spread),
        off=made.off, trend=trend, tried=tried, law=made.law,
    )  # fmt: skip


def _all_here(now: TableReads, lookups: int, policies: tuple[str, ...], serve: float) -> Forecast:
    """The forecast if no new id occurred in the second half: the rows that the beginning needs."""
    return Forecast(
        lookups=lookups, distinct=now.distinct, rows={policy: now.rows(policy, serve) for policy in policies}, low=1.0,
        high=1.0, off=0.0, trend=0.0, tried=None, law=None,
    )  # fmt: skip


def growth(law: IdLaw, ends: tuple[int, int], policy: str, serve: float, admit: int = 1) -> float:
    """Factor by which the rows that serve a share grow between streams of two lengths (`ends`, in lookups)."""
    if policy == "lru" and admit == 1:
        return law.rows(ends[1], serve) / law.rows(ends[0], serve)
    first, last = (TableReads(drawn(law, each, DRAWN), admit).rows(policy, serve) for each in ends)
    return last / first


def _trend(sampled: Sampled, serve: float) -> float:
    """Exponent of time by which streams of equal length need more rows; 0 if the difference is not significant."""

    def power(part: Sampled) -> float:
        halves = part.first(part.lookups // 2), part.last(part.lookups // 2)
        first, last = (TableReads(each).rows("lru", serve) for each in halves)
        return math.log(last / first) / HALVES if min(first, last) >= FEW_ROWS else 0.0

    found = power(sampled)
    certain = DEVIATIONS * float(np.std([power(part) for part in sampled.groups()], ddof=1)) / math.sqrt(GROUPS)
    return math.copysign(max(0.0, abs(found) - STEADY - certain), found)


def _told(sampled: Sampled, lookups: int, made: LawFit, serve: float, trend: float) -> float:
    """Forecast of the rows of a longer stream under LRU."""
    longer = (lookups / sampled.lookups) ** trend
    return TableReads(sampled).rows("lru", serve) * longer * growth(made.law, (sampled.lookups, lookups), "lru", serve)


def _tried(sampled: Sampled, now: TableReads, serve: float) -> float | None:
    """Rows forecast for the beginning from its first quarter / rows that it needs; None if no forecast is possible."""
    begun = sampled.first(sampled.lookups // TRIED)
    try:
        forecast = _told(begun, sampled.lookups, fit(seen(begun)), serve, _trend(begun, serve))
    except UsageError:
        return None
    return forecast / (now if now.admit == 1 else TableReads(sampled)).rows("lru", serve)


def _spread(sampled: Sampled, lookups: int, law: IdLaw, serve: float) -> float:
    """Two standard deviations of log(rows), from forecasts by groups of ids."""
    ratios = list[float]()
    for part in sampled.groups():
        try:
            ratios.append(math.log(_told(part, lookups, fit(seen(part), law), serve, 0.0)))
        except UsageError:
            continue
    return DEVIATIONS * float(np.std(ratios, ddof=1)) / math.sqrt(GROUPS) if len(ratios) > 2 else math.log(2)
