"""How many rows a longer stream needs, from its beginning: a law of the ids that came, and how far it may be off.

The law says by which factor rows grow that a longer and longer stream needs whose ids come by it. Where the second
half of the beginning needs more rows than the first, streams as long as each other need more with time, too: the rows
grow by this trend besides. What grows are the rows that the beginning needs, as they were counted.
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

DRAWN = 2**17  # lookups of a stream that is drawn by the law
TRIED = 4  # the first of so many parts of the beginning, from which the rows of the beginning are told as a test
HALVES = math.log(3)  # how far the middles of two halves lie apart: at 1/4 and 3/4
FEW_ROWS = 30  # that say nothing of a trend
STEADY = 0.02  # a trend below it is none: laws miss as much


@noun
class Forecast:
    """Rows that a stream of so many lookups needs, of which only the beginning was read.

    distinct: different ids in it. rows: by policy. low, high: rows over these, of an interval that is as wide as parts
    of the ids and a forecast of the beginning itself differ. off: what the law misses of what was counted, a share.
    trend: the power of time by which as long streams need more rows, beside the law. tried: rows that the first quarter
    of the beginning told for the beginning, over those that it needs; None where a quarter tells nothing. law: None
    where no new id came in the second half, so that rows do not grow.
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
    """The rows that serve a share in a stream of so many lookups that begins as the sampled one.

    Raises:
        UsageError: the stream is no longer than its beginning, or too few ids came.
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
    """The rows of a stream in whose second half no new id came: as many as its beginning needs."""
    return Forecast(
        lookups=lookups, distinct=now.distinct, rows={policy: now.rows(policy, serve) for policy in policies}, low=1.0,
        high=1.0, off=0.0, trend=0.0, tried=None, law=None,
    )  # fmt: skip


def growth(law: IdLaw, ends: tuple[int, int], policy: str, serve: float, admit: int = 1) -> float:
    """By which factor the rows grow that serve a share, from a stream of one length to one of another."""
    if policy == "lru" and admit == 1:
        return law.rows(ends[1], serve) / law.rows(ends[0], serve)
    first, last = (TableReads(drawn(law, each, DRAWN), admit).rows(policy, serve) for each in ends)
    return last / first


def _trend(sampled: Sampled, serve: float) -> float:
    """The power of time by which as long streams need more rows: 0 where halves differ as parts of the ids do."""

    def power(part: Sampled) -> float:
        halves = part.first(part.lookups // 2), part.last(part.lookups // 2)
        first, last = (TableReads(each).rows("lru", serve) for each in halves)
        return math.log(last / first) / HALVES if min(first, last) >= FEW_ROWS else 0.0

    found = power(sampled)
    certain = DEVIATIONS * float(np.std([power(part) for part in sampled.groups()], ddof=1)) / math.sqrt(GROUPS)
    return math.copysign(max(0.0, abs(found) - STEADY - certain), found)


def _told(sampled: Sampled, lookups: int, made: LawFit, serve: float, trend: float) -> float:
    """Rows of a longer stream under LRU."""
    longer = (lookups / sampled.lookups) ** trend
    return TableReads(sampled).rows("lru", serve) * longer * growth(made.law, (sampled.lookups, lookups), "lru", serve)


def _tried(sampled: Sampled, now: TableReads, serve: float) -> float | None:
    """What a forecast from the first quarter says for the beginning, over what it needs; None where it says nothing."""
    begun = sampled.first(sampled.lookups // TRIED)
    try:
        told = _told(begun, sampled.lookups, fit(seen(begun)), serve, _trend(begun, serve))
    except UsageError:
        return None
    return told / (now if now.admit == 1 else TableReads(sampled)).rows("lru", serve)


def _spread(sampled: Sampled, lookups: int, law: IdLaw, serve: float) -> float:
    """Two standard deviations of the logarithm of the rows, by forecasts from parts of the ids."""
    told = list[float]()
    for part in sampled.groups():
        try:
            told.append(math.log(_told(part, lookups, fit(seen(part), law), serve, 0.0)))
        except UsageError:
            continue
    return DEVIATIONS * float(np.std(told, ddof=1)) / math.sqrt(GROUPS) if len(told) > 2 else math.log(2)
