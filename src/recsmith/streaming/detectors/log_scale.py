"""A logarithmic scale for skewed series, on which the far values of a long-tailed distribution are no outliers."""

import math
import statistics
from collections.abc import Sequence

from recsmith.streaming.detectors.plain_state import PlainState

LOW, HALF, HIGH = 0.05, 0.5, 0.95  # quantiles of the first values that determine the scale
STRETCH, FEW = 100, 3  # values in a stretch whose skew is measured, and least number of such stretches
LONG_TAIL = 3.0  # ratio of the distances of the 5th and 95th percentile from the median, from which a tail is long


class LogScale(PlainState):
    """asinh((value - m) / u): about linear within u of m, and logarithmic far from it, on either side.

    m is the median of the first values, and u its distance to their nearer one of the 5th and 95th percentile, which is
    the side without the tail. first: number of first values.
    """

    STATE = ("_first", "_middle", "_unit")

    def __init__(self, first: int) -> None:
        self.first = max(1, first)
        self._first: list[float] | None = []  # None once the scale is known
        self._middle, self._unit = 0.0, 1.0

    def add(self, value: float) -> list[float]:
        """Scaled values to judge now: none at first, then all first values at once, and then each value as it comes."""
        if self._first is None:
            return [self._scaled(value)]
        self._first.append(value)
        if len(self._first) < self.first:
            return []
        ordered, self._first = self._first, None
        self._begin(sorted(ordered))
        return [self._scaled(each) for each in ordered]

    def _begin(self, ordered: list[float]) -> None:
        low, self._middle, high = _percentiles(ordered)
        sides = [each for each in (self._middle - low, high - self._middle) if each > 0]
        self._unit = min(sides, default=abs(self._middle) or 1.0)

    def _scaled(self, value: float) -> float:
        return math.asinh((value - self._middle) / self._unit)


def tail_note(name: str, values: Sequence[float], alarms: Sequence[int]) -> str | None:
    """A hint if a series has a long tail and one of its alarms is in the tail; else None. alarms: their indices.

    The tail is judged within stretches of 100 values by the median of their skews, so that a shifted level makes none.
    """
    stretches = [sorted(values[at : at + STRETCH]) for at in range(0, len(values) - STRETCH + 1, STRETCH)]
    skews = [skew for each in stretches if (skew := _skew(each)) is not None]
    if len(skews) < FEW or abs(middle := statistics.median(skews)) < math.log(LONG_TAIL):
        return None
    side, other = ("95th", "5th") if middle > 0 else ("5th", "95th")
    if not any(_is_far(values, at, middle > 0) for at in alarms):
        return None
    return (
        f"'{name}' has a long tail: in most stretches of {STRETCH} values the {side} percentile is "
        f"{math.exp(abs(middle)):.1f} times as far from the median as the {other}; where far values are no faults, "
        "--set scale=log judges logarithms"
    )


def _skew(ordered: Sequence[float]) -> float | None:
    """log((95th percentile - median) / (median - 5th percentile)); None if one of the differences is 0."""
    low, middle, high = _percentiles(ordered)
    return math.log((high - middle) / (middle - low)) if low < middle < high else None


def _is_far(values: Sequence[float], at: int, up: bool) -> bool:
    """Whether a value is above the 95th percentile of the values around it (up), or below the 5th."""
    low, _, high = _percentiles(sorted(values[max(0, at - STRETCH) : at + STRETCH]))
    return values[at] > high if up else values[at] < low


def _percentiles(ordered: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (LOW, HALF, HIGH))
    return low, middle, high
