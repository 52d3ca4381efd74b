"""Distance of a value from the median of the last values, in robust deviations by their MAD."""

from bisect import bisect_left, insort
from statistics import fmean

from recsmith.errors import check_rules
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector

TO_DEVIATION = 1.4826  # of a normal distribution: standard deviation / median absolute deviation (MAD)
MEAN_TO_DEVIATION = 1.2533  # standard deviation / mean distance; Iglewicz and Hoaglin, "How to Detect Outliers", 1993
SMALLEST = 1e-9  # least deviation relative to the median, for constant windows


class MedianMad(PlainState, Detector):
    """Distance of a value from the median of the last `window` values / (1.4826 * their median absolute deviation).

    The window is kept sorted, so a value costs a search and an insertion, and the MAD a binary search.
    """

    STATE = ("_last", "_at")

    def __init__(self, *, window: int = 200, warm: int = 100, threshold: float = 8.0) -> None:
        check_rules(
            None if window >= 3 else f"window is {window}; it must be at least 3",
            None if 2 <= warm <= window else f"warm is {warm}; it must be 2 to window, {window}",
        )
        self.window, self.warm, self.threshold = window, warm, threshold
        self._last: list[float] = []  # ring buffer of the last values
        self._at = 0  # index of the oldest value
        self._sorted: list[float] = []

    def score(self, value: float) -> float:
        """|value - median| / (1.4826 MAD); the value is added to the window afterwards."""
        found = 0.0
        if len(self._last) >= self.warm:
            median = self._sorted[len(self._sorted) // 2]
            found = abs(value - median) / max(self._deviation(median), SMALLEST * (1 + abs(median)))
        self._learn(value)
        return found

    def _deviation(self, median: float) -> float:
        """A standard deviation by the MAD, or by the mean distance if the MAD is 0, as with mostly equal values."""
        mad = self._mad(median)
        return TO_DEVIATION * mad if mad else MEAN_TO_DEVIATION * fmean(abs(each - median) for each in self._last)

    def _mad(self, median: float) -> float:
        """The MAD: half of the sorted values form a run around the median, and its reach is the MAD."""
        values, half = self._sorted, len(self._sorted) // 2
        low, high = 0, len(values) - half - 1  # bounds of the first index of the half + 1 values with the least reach
        while low < high:
            middle = (low + high) // 2
            if median - values[middle] > values[middle + half] - median:
                low = middle + 1
            else:
                high = middle
        reach = [max(median - values[i], values[i + half] - median) for i in (low - 1, low) if i >= 0]
        return min(reach)

    def _learn(self, value: float) -> None:
        if len(self._last) < self.window:
            self._last.append(value)
        else:
            old, self._last[self._at] = self._last[self._at], value
            self._at = (self._at + 1) % self.window
            del self._sorted[bisect_left(self._sorted, old)]
        insort(self._sorted, value)

    def from_raw(self, raw: dict[str, object]) -> None:
        """Restore the state, and sort the window."""
        super().from_raw(raw)
        self._sorted = sorted(self._last)
