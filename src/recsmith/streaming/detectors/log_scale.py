"""Skewed series on a scale of logarithms, where the far values of a law with a long tail are no longer far."""

import math
from collections.abc import Sequence

from recsmith.streaming.detectors.plain_state import PlainState

LOW, HALF, HIGH = 0.05, 0.5, 0.95  # shares of the first values that are below what the scale goes by
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


def tail_note(name: str, values: Sequence[float]) -> str | None:
    """What is said of a series whose values have a long tail on one side; None of another one."""
    low, middle, high = _percentiles(sorted(values))
    near, far = sorted((middle - low, high - middle))
    if near <= 0 or far < LONG_TAIL * near:
        return None
    side, other = ("95th", "5th") if far == high - middle else ("5th", "95th")
    return (
        f"'{name}' has a long tail: its {side} percentile is {far / near:.1f} times as far from its median as its "
        f"{other}; where far values are no faults, --set scale=log judges logarithms"
    )


def _percentiles(ordered: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (LOW, HALF, HIGH))
    return low, middle, high
