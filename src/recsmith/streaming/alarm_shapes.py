"""What an alarm of a series looks like beside the values around it: a spike, a level that moved, a series that froze.

A detector says that something is unusual, and a score says how much. Here values before and after an alarm are compared
by medians and by the median distance from them, so that one far value makes no other one look usual.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from recsmith._types import Floats, noun

BEFORE, AFTER = 100, 20  # values before an alarm, and from it on, that are compared
BACK = 160  # values before the alarm since when a level may have moved
FEW = 5  # values that a median needs
FAR = 4.0  # deviations of a single value that is far off
MOVED, LEAST = 6.0, 0.5  # standard errors, and deviations, by which a level moved
FROZEN = 5  # equal values in a row
WIDER = 2.0  # times the deviation before
TO_DEVIATION, OF_MEDIAN = 1.4826, 1.2533  # of a normal law: deviation over median distance; errors of median over mean
Kind = Literal["spike", "level", "frozen", "spread", "late", "together"]


@noun
class AlarmShape:
    """What happened at an alarm.

    kind: spike (one value, or a few), level (values stay elsewhere), frozen (one value again and again), spread (values
    vary more), late (far off among the newest values, so that nobody knows whether it stays), together (nothing of
    these). usual, deviation: of the values before. since: the value with which it began. now: the value, or the median
    of those that follow; of frozen ones how many they are, and of spread their deviation. season: what its place in a
    period adds to the value at the alarm; usual, deviation and now are of values less their season.
    """

    kind: Kind
    usual: float
    deviation: float
    since: int
    now: float
    season: float = 0.0


def shape_of(values: Sequence[float], at: int, season: Sequence[float] = ()) -> AlarmShape:
    """What the alarm at a value of a series looks like. season: what the places of a period add to values, if any."""
    first = max(0, at - BACK - BEFORE)
    near = np.asarray(values[first : at + AFTER + 1], float)
    seasonal = np.take(season or (0.0,), np.arange(first, first + len(near)), mode="wrap")
    shape = _shape_less_season(near - seasonal, at - first, _equal(values, at), first)
    return replace(shape, season=float(seasonal[at - first]))


def _shape_less_season(near: Floats, here: int, run: tuple[int, int] | None, first: int) -> AlarmShape:
    """The shape at one of the values that are near it. run: the equal values around it. first: where near begins."""
    at, value = first + here, float(near[here])
    usual, deviation = _middle(near[max(0, here - BEFORE) : here] if here else near[:1])
    if run is not None:
        return AlarmShape(kind="frozen", usual=usual, deviation=deviation, since=run[0], now=float(run[1]))
    after, distance = near[here + 1 :], abs(value - usual)
    far = distance > FAR * deviation
    if far and len(after) < FEW:
        return AlarmShape(kind="late", usual=usual, deviation=deviation, since=at, now=value)
    wide = _middle(after)[1] if len(after) >= FEW else 0.0
    if wide > WIDER * deviation and (not far or abs(float(np.median(after)) - usual) < wide):
        return AlarmShape(kind="spread", usual=usual, deviation=deviation, since=at, now=wide)
    if far and abs(float(np.median(after)) - usual) < distance / 2:
        return AlarmShape(kind="spike", usual=usual, deviation=deviation, since=at, now=value)
    if (moved := _moved(near, here)) is not None:
        start, before, then = moved
        return AlarmShape(kind="level", usual=before, deviation=deviation, since=first + start, now=then)
    return AlarmShape(kind="together", usual=usual, deviation=deviation, since=at, now=value)


def _middle(values: Floats) -> tuple[float, float]:
    """Median, and deviation by the median distance from it; the standard deviation where that is 0."""
    middle = float(np.median(values))
    deviation = TO_DEVIATION * float(np.median(np.abs(values - middle)))
    return middle, deviation or float(np.std(values))


def _equal(values: Sequence[float], at: int) -> tuple[int, int] | None:
    """(first, count) of the equal values around one that repeats those before it; None where they are few."""
    first = at
    while first and values[first - 1] == values[at]:
        first -= 1
    if at - first + 1 < FROZEN:
        return None
    end = at
    while end < len(values) and values[end] == values[at]:
        end += 1
    return first, end - first


def _moved(near: Floats, here: int) -> tuple[int, float, float] | None:
    """(where, median before, median after) of a level that moved; None where it did not by as much as is certain.

    It moved where two medians, of the values before and after, leave the least distances in all.
    """
    starts = range(max(here - BACK, FEW), here + 1)
    if not starts:
        return None
    start = min(starts, key=lambda each: _distances(near[:each]) + _distances(near[each:]))
    old, new = near[max(0, start - BEFORE) : start], near[start:]
    (before, deviation), then = _middle(old), float(np.median(new))
    error = OF_MEDIAN * deviation * math.sqrt(1 / len(old) + 1 / len(new))
    return (start, before, then) if abs(then - before) > max(MOVED * error, LEAST * deviation) else None


def _distances(values: Floats) -> float:
    return float(np.abs(values - np.median(values)).sum())
