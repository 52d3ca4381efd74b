"""Detects a frozen series: scores how unlikely a run of equal values as long as the current one is."""

import math

from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.tail import DecayingTail

ONCE, FEW = 1.0, 10.0  # prior weights: repeats and values that count as seen at the start
LONG = 32  # length at which runs are capped, so that a long run is reported only once


class FrozenRun(PlainState):
    """Scores the current run of equal values.

    A run is unusual if it is both unlikely, given the share of values that repeat the one before, and longer than past
    runs. So neither counts that are mostly 0 nor nights without traffic are unusual.
    half_life: number of values after which a value's weight is halved.
    """

    STATE = ("tail", "_last", "_run", "_repeats", "_values")

    def __init__(self, half_life: float) -> None:
        self.tail = DecayingTail(half_life)
        self.kept = 0.5 ** (1 / half_life)
        self._last: float | None = None
        self._run = 0  # number of repeats in the current run
        self._repeats, self._values = 0.0, 0.0  # summed weights of values that repeat the one before, and of all values

    def surprise(self, value: float) -> float:
        """-log10 of the probability of a run as long as the current one: the larger of two estimates."""
        self._run = self._run + 1 if value == self._last else 0
        self._last = value
        self._repeats, self._values = self.kept * self._repeats + (self._run > 0), self.kept * self._values + 1
        share = (self._repeats + ONCE) / (self._values + FEW)
        return min(-self._run * math.log10(min(share, 1.0)), self.tail.surprise(float(min(self._run, LONG))))
