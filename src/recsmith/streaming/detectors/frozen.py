"""Whether a series froze: how rarely its values stay the same for as long as they do now."""

import math

from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.tail import DecayingTail

ONCE, FEW = 1.0, 10.0  # repeats, and values, that count as seen before any is
LONG = 32  # values of a run that are as good as any more: so one that lasts is told once


class FrozenRun(PlainState):
    """The run of equal values up to now.

    It is unusual where so many repeats are by the share of values that repeat the one before, and where no run of the
    past was as long: so neither counts that are mostly 0 nor nights without values are.
    half_life: values after which a value weighs half.
    """

    STATE = ("tail", "_last", "_run", "_repeats", "_values")

    def __init__(self, half_life: float) -> None:
        self.tail = DecayingTail(half_life)
        self.kept = 0.5 ** (1 / half_life)
        self._last: float | None = None
        self._run = 0  # values that repeated the one before them
        self._repeats, self._values = 0.0, 0.0  # weights of values that did, and of all

    def surprise(self, value: float) -> float:
        """-log10 of the chance of so long a run."""
        self._run = self._run + 1 if value == self._last else 0
        self._last = value
        self._repeats, self._values = self.kept * self._repeats + (self._run > 0), self.kept * self._values + 1
        share = (self._repeats + ONCE) / (self._values + FEW)
        return min(-self._run * math.log10(min(share, 1.0)), self.tail.surprise(float(min(self._run, LONG))))
