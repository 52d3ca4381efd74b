"""ADWIN: the mean of a series changed, found by an adaptive window; river's.

Bifet and Gavalda, "Learning from Time-Changing Data with Adaptive Windowing", SDM 2007. It holds for values in 0 .. 1.
"""

import statistics
from typing import Any

from recsmith._install import WATCHING
from recsmith.errors import MissingExtra, check_rules
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector

MOST, KEPT = 512, 256  # values that one window sees, and those of them that the next begins with; bounds its state
DIGITS = 6  # of a value in the window, and in its state
SMALLEST = 1e-9  # a deviation, relative to the median: of a constant series, whose every change is one
CLOCK = 1  # values between two tests
GRACE = 5  # values before the first test, and in each half of one


class Adwin(PlainState, Detector):
    """By how much the mean changed where river's ADWIN finds that it did, in the range of the values; else 0.

    delta: chance of a false alarm that a test may have. scale: values are in 0 .. scale; none: learned, as eight robust
    deviations around the median of the first 50. After an alarm the window begins anew.

    A window would grow for ever. So that its state can be kept as plain numbers, it begins anew with the newest 256
    values whenever it has seen 512: slower drifts than that are not found.
    """

    STATE = ("_scale", "_shift", "_values")

    def __init__(self, *, delta: float = 0.002, scale: float | None = None, warm: int = 50) -> None:
        check_rules(
            None if 0 < delta < 1 else f"delta is {delta}; it must lie between 0 and 1",
            None if scale is None or scale > 0 else f"scale is {scale}; it must be more than 0",
            None if warm >= 3 else f"warm is {warm}; it must be at least 3",
        )
        self.delta, self.warm, self.threshold = delta, warm, 0.0
        self._scale, self._shift = (scale, 0.0)
        self._values: list[float] = []  # that the window has seen, as it came to see them
        self._window = self._empty()

    def score(self, value: float) -> float:
        """How far the mean moved, where it did; then the value is learned."""
        if self._scale is None:
            return self._begin(value)
        kept = self._scaled(value)
        before = self._window.estimation
        self._values.append(kept)
        self._window.update(kept)
        if self._window.drift_detected:
            moved = abs(self._window.estimation - before)
            self._values, self._window = [], self._empty()
            return max(moved, 1e-6) * self._scale
        if len(self._values) >= MOST:
            self._refill(self._values[-KEPT:])
        return 0.0

    def _begin(self, value: float) -> float:
        """Keep a first value; the last of them sets the scale."""
        self._values.append(value)
        if len(self._values) >= self.warm:
            middle = statistics.median(self._values)
            reach = statistics.median([abs(each - middle) for each in self._values]) * 1.4826
            reach = max(reach or statistics.pstdev(self._values), SMALLEST * (1 + abs(middle)))
            self._scale, self._shift = 8 * reach, middle - 4 * reach
            first, self._values = self._values, []
            self._refill([self._scaled(each) for each in first])
        return 0.0

    def _scaled(self, value: float) -> float:
        """The value in 0 .. 1, to so many digits as state keeps."""
        assert self._scale is not None
        return round(min(max((value - self._shift) / self._scale, 0.0), 1.0), DIGITS)

    def _refill(self, values: list[float]) -> None:
        """A new window that has seen these values."""
        self._values, self._window = list(values), self._empty()
        for value in values:
            self._window.update(value)

    def _empty(self) -> Any:
        try:
            from river.drift import ADWIN
        except ImportError:
            raise MissingExtra(f"detector adwin needs river: {WATCHING}") from None
        return ADWIN(delta=self.delta, clock=CLOCK, grace_period=GRACE)

    def from_raw(self, raw: dict[str, Any]) -> None:
        """Go on from there: the window sees again what it had seen."""
        super().from_raw(raw)
        if self._scale is not None:
            self._refill(self._values)
