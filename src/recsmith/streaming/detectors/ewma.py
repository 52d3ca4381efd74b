"""Robust EWMA: distance of a value from a moving mean in moving standard deviations, where outliers are clipped."""

import math
import statistics

from recsmith.errors import check_rules
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector, half_life_rule

SMALLEST = 1e-9  # least deviation relative to the mean: in a constant series every change is unusual
CLIP = 3.0  # deviations at which a value is clipped before it is learned, so that outliers are not learned as normal


class Ewma(PlainState, Detector):
    """Distance of a value from the exponentially weighted mean of the values before, in weighted standard deviations.

    half_life: number of values after which a value's weight is halved. warm: number of first values whose mean and
    deviation are the initial ones.
    """

    STATE = ("mean", "deviation", "_first")

    def __init__(self, *, half_life: float = 140.0, warm: int = 100, threshold: float = 6.0) -> None:
        check_rules(
            half_life_rule(half_life),
            None if warm >= 2 else f"warm is {warm}; it must be at least 2",
        )
        self.warm, self.threshold = warm, threshold
        self.weight = 1 - 0.5 ** (1 / half_life)
        self.mean, self.deviation = 0.0, 0.0
        self._first: list[float] | None = []  # the first values; None after mean and deviation are initialized

    @property
    def known(self) -> bool:
        """Whether mean and deviation are initialized."""
        return self._first is None

    def score(self, value: float) -> float:
        """|value - mean| / deviation; the value is learned afterwards."""
        if self._first is not None:
            return self._begin(value)
        distance = value - self.mean
        deviations = distance / self.deviation
        weight = self.weight
        clipped = distance if -CLIP < deviations < CLIP else math.copysign(CLIP * self.deviation, distance)
        self.mean += weight * clipped
        variance = (1 - weight) * self.deviation * self.deviation + weight * clipped * clipped
        self.deviation = max(math.sqrt(variance), SMALLEST * (1 + abs(self.mean)))
        return abs(deviations)

    def _begin(self, value: float) -> float:
        """Keep one of the first values; after the last of them, initialize mean and deviation."""
        first = self._first
        assert first is not None
        first.append(value)
        if len(first) >= self.warm:
            self.mean = statistics.fmean(first)
            self.deviation = max(statistics.pstdev(first, self.mean), SMALLEST * (1 + abs(self.mean)))
            self._first = None
        return 0.0
