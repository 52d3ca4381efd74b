"""Classifies alarms of a series by the values around them: a spike, a shift of the level, a frozen series and others.

A detector only reports that a value is unusual, and its score how much. Here the values before and after an alarm are
compared by medians and median absolute deviations, so that an outlier does not hide another one.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from recsmith._types import Floats, noun

BEFORE, AFTER = 100, 20  # numbers of values before and after an alarm that are compared
BACK = 160  # values before the alarm within which a shift of the level may have begun
FEW = 5  # values that a median needs
FAR = 4.0  # deviations from the median at which a single value is an outlier
MOVED, LEAST = 6.0, 0.5  # standard errors, and deviations, by which a level must have shifted
FROZEN = 5  # equal values in a row that count as frozen
WIDER = 2.0  # deviation after the alarm / before it, from which the spread has grown
TO_DEVIATION, OF_MEDIAN = 1.4826, 1.2533  # for normal values: deviation / MAD; standard error of median / of mean
Kind = Literal["spike", "level", "frozen", "spread", "late", "together"]


@noun
class AlarmShape:
    """What happened at an alarm.

    kind: spike (one or a few outliers), level (the level shifted), frozen (one value repeats), spread (values vary
    more), late (an outlier among the newest values, so that it is too early to tell), together (none of these). usual,
    deviation: median and deviation of the values before. since: index of the value at which it began. now: the value
    for spike, late and together; the median afterwards for level; the number of equal values for frozen; the deviation
    afterwards for spread. season: seasonal component of the value at the alarm; it is subtracted in usual, deviation
    and now.
    """

    kind: Kind
    usual: float
    deviation: float
    since: int
    now: float
    season: float = 0.0


def shape_of(values: Sequence[float], at: int, season: Sequence[float] = ()) -> AlarmShape:
    """The shape of the alarm at index `at` of a series. season: seasonal component by position in a period, if any."""
    first = max(0, at - BACK - BEFORE)
    near = np.asarray(values[first : at + AFTER + 1], float)
    seasonal = np.take(season or (0.0,), np.arange(first, first + len(near)), mode="wrap")
    shape = _shape_less_season(near - seasonal, at - first, _equal(values, at), first)
    return replace(shape, season=float(seasonal[at - first]))


def _shape_less_season(near: Floats, here: int, run: tuple[int, int] | None, first: int) -> AlarmShape:
    """The shape at index `here` of `near`, values without season. run: the frozen run. first: index of near[0]."""
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
    """(median, deviation by the median absolute deviation, or the standard deviation if that is 0)."""
    middle = float(np.median(values))
    deviation = TO_DEVIATION * float(np.median(np.abs(values - middle)))
    return middle, deviation or float(np.std(values))


def _equal(values: Sequence[float], at: int) -> tuple[int, int] | None:
    """(first index, count) of the run of equal values around one; None unless FROZEN of them end at it."""
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
    """(start, median before, median after) of a shift of the level; None if it is not significant.

    The start is where the medians of the values before and after leave the least sum of absolute distances.
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
