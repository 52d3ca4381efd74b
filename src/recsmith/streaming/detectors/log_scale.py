"""Skewed series on a scale of logarithms, where the far values of a law with a long tail are no longer far."""

import math
import statistics
from collections.abc import Sequence

from recsmith.streaming.detectors.plain_state import PlainState

LOW, HALF, HIGH = 0.05, 0.5, 0.95  # shares of the first values that are below what the scale goes by
STRETCH, FEW = 100, 3  # values of a stretch whose tail is looked at, and stretches that tell of a series
LONG_TAIL = 3.0  # times as far from the median as the other one: 5th and 95th percentile of a skewed law


class LogScale(PlainState):
    """asinh((value - m) / u): about linear within u of m, and like a logarithm far from it, on either side.

    m is the median of the first values. u is the distance from it to their 5th or 95th percentile, to the nearer one:
    that of the side without the tail. first: how many values those are.
    """

    STATE = ("_first", "_middle", "_unit")

    def __init__(self, first: int) -> None:
        self.first = max(1, first)
        self._first: list[float] | None = []  # None once the scale is known
        self._middle, self._unit = 0.0, 1.0

    def add(self, value: float) -> list[float]:
        """What is to be judged now: nothing at first, then all first values at once, then each as it comes."""
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
    """What is said of a series whose values have a long tail, where one of its alarms is in that tail; None elsewhere.

    The tail is that of most stretches of 100 values, each beside its own median: a level that moved makes none.
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
    """The logarithm of how much farther the 95th percentile is from the median than the 5th; None of equal values."""
    low, middle, high = _percentiles(ordered)
    return math.log((high - middle) / (middle - low)) if low < middle < high else None


def _is_far(values: Sequence[float], at: int, up: bool) -> bool:
    """Whether a value is beyond the 95th percentile of those around it, or below the 5th."""
    low, _, high = _percentiles(sorted(values[max(0, at - STRETCH) : at + STRETCH]))
    return values[at] > high if up else values[at] < low


def _percentiles(ordered: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (LOW, HALF, HIGH))
    return low, middle, high
