"""ADWIN: detects changes of a series' mean with an adaptive window; uses the package river.

Bifet and Gavalda, "Learning from Time-Changing Data with Adaptive Windowing", SDM 2007. It requires values in 0 .. 1.
"""

import statistics
from typing import Any

from recsmith._install import WATCHING
from recsmith.errors import MissingExtra, check_rules
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector

MOST, KEPT = 512, 256  # values after which a window is restarted, and newest values it restarts with; bounds the state
DIGITS = 6  # decimal digits of a value in the window and in its state
SMALLEST = 1e-9  # least deviation relative to the median: in a constant series every change counts
CLOCK = 1  # values between two tests
GRACE = 5  # values before the first test, and in each half of a test


class Adwin(PlainState, Detector):
    """The size of a change of the mean, in units of the values, when river's ADWIN detects one; else 0.

    delta: probability of a false alarm per test. scale: values are in 0 .. scale; none: learned, as eight robust
    deviations around the median of the first `warm` values. After an alarm the window restarts empty.

    A window would grow for ever. So that its state can be saved as plain numbers, it restarts with the newest 256
    values whenever it has seen 512: slower drifts than that are not detected.
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
        self._values: list[float] = []  # the values in the window, in order
        self._window = self._empty()

    def score(self, value: float) -> float:
        """Add a value to the window; returns by how much the mean changed if a change is detected, else 0."""
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
        """Keep one of the first values; after the last of them, set the scale."""
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
        """The value scaled to 0 .. 1 and rounded to DIGITS digits, as it is saved."""
        assert self._scale is not None
        return round(min(max((value - self._shift) / self._scale, 0.0), 1.0), DIGITS)

    def _refill(self, values: list[float]) -> None:
        """Restart the window with these values."""
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
        """Restore the state, and refill the window with its values."""
        super().from_raw(raw)
        if self._scale is not None:
            self._refill(self._values)
