"""Watches many levels at once: the usual value of each, and whether it has shifted.

A level has one value per look. It has shifted if its deviations from a moving mean add up (CUSUM: Page, "Continuous
Inspection Schemes", Biometrika 1954). A single look, however far off, is no shift.

n levels
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.plain_state import PlainState, by_places, places_of
from recsmith.streaming.hot_sets import packed, unpacked

WARM = 25  # first values of a level from which mean and deviation are initialized
LEARN = 1 - 0.5 ** (1 / 60)  # weight of a value in mean and variance: the last 60 values have half of the weight
CLIP = 3.0  # deviations at which a value is clipped before it is learned
SLACK, MOST, SUM = 1.0, 6.0, 8.0  # CUSUM in deviations: subtracted per look, largest per look, sum that is a shift
SMALLEST = 1e-9  # least deviation relative to the mean, for constant levels
Mask = npt.NDArray[np.bool_]
NUMBERS = ("usual", "deviation", "_sums", "_totals")  # attributes that the state keeps as floating-point numbers


class Levels(PlainState):
    """Levels by name. usual: their moving means (n,). run: number of looks in the current shift, 0 without one (n,)."""

    STATE = ("_kept",)

    def __init__(self, names: Sequence[str]) -> None:
        self.names, count = tuple(names), len(names)
        self.usual, self.deviation = np.zeros(count), np.zeros(count)
        self.seen = np.zeros(count, np.int64)  # number of first values, counted up to WARM
        self._sums, self._totals = np.zeros((2, count)), np.zeros((2, count))  # up, down: CUSUM, sum of values
        self._looks = np.zeros((2, count), np.int64)  # up, down: number of summed looks

    @property
    def known(self) -> Mask:
        """Whether the usual value of each level is known (n,)."""
        return self.seen >= WARM

    @property
    def run(self) -> Ints:
        """Number of looks since the current shift began (n,)."""
        return np.take_along_axis(self._looks, self._way[None], 0)[0]

    @property
    def now(self) -> Floats:
        """The mean over the looks of the current shift, or the usual value if there is none (n,)."""
        looks, totals = (np.take_along_axis(part, self._way[None], 0)[0] for part in (self._looks, self._totals))
        return np.where(looks > 0, totals / np.maximum(looks, 1), self.usual)

    @property
    def _way(self) -> Ints:
        return np.argmax(self._sums, axis=0)

    def add(self, values: Floats, noise: Floats) -> Mask:
        """Add the next values (n,), NaN for none; returns which levels have shifted. noise: least deviations (n,)."""
        there = np.isfinite(values)
        judged = there & self.known
        distance = np.where(judged, values - self.usual, 0.0)
        with np.errstate(over="ignore"):
            far = np.clip(distance / np.maximum(np.maximum(self.deviation, noise), 1e-300), -MOST, MOST)
        for way, each in enumerate((far, -far)):
            sums = np.where(judged, np.clip(self._sums[way] + each - SLACK, 0.0, 2 * SUM), self._sums[way])
            going = judged & (sums > 0)
            self._looks[way] = np.where(judged, np.where(going, self._looks[way] + 1, 0), self._looks[way])
            self._totals[way] = np.where(going, self._totals[way] + values, np.where(judged, 0.0, self._totals[way]))
            self._sums[way] = sums
        self._learn(judged, distance)
        self._begin(there & ~judged, values)
        return judged & (self._sums.max(0) > SUM)

    def _learn(self, judged: Mask, distance: Floats) -> None:
        """Update mean and deviation of judged levels, with outliers clipped."""
        reach = CLIP * self.deviation
        clipped = np.clip(distance, -reach, reach)
        self.usual = self.usual + np.where(judged, LEARN * clipped, 0.0)
        variance = (1 - LEARN) * self.deviation**2 + LEARN * clipped**2
        least = SMALLEST * (1 + np.abs(self.usual))
        self.deviation = np.where(judged, np.maximum(np.sqrt(variance), least), self.deviation)

    def _begin(self, first: Mask, values: Floats) -> None:
        """Update mean and deviation of the first values (Welford)."""
        if not first.any():
            return
        self.seen = self.seen + first
        before = np.where(first, values, 0.0) - self.usual
        mean = self.usual + np.where(first, before / np.maximum(self.seen, 1), 0.0)
        squares = (self.seen - 1) * self.deviation**2 + before * (values - mean)
        with np.errstate(invalid="ignore"):
            deviation = np.sqrt(np.maximum(squares, 0.0) / np.maximum(self.seen, 1))
        least = np.where(self.seen >= WARM, SMALLEST * (1 + np.abs(mean)), 0.0)
        self.deviation = np.where(first, np.maximum(deviation, least), self.deviation)
        self.usual = mean

    def mark_reported(self, places: Ints) -> None:
        """Reset the sums of levels whose shift was reported."""
        self._sums[:, places], self._looks[:, places], self._totals[:, places] = 0.0, 0, 0.0

    def with_names(self, names: Sequence[str], anew: str) -> "Levels":
        """The levels of other names; new ones, and the one named `anew`, start without a usual value."""
        made, places, fresh = Levels(names), places_of(names, self.names), Levels(("",))
        places[names.index(anew)] = -1
        for name in (*NUMBERS, "seen", "_looks"):
            kept = getattr(self, name)
            setattr(made, name, by_places(kept, places, getattr(fresh, name), kept.ndim - 1))
        return made

    @property
    def _kept(self) -> list[str]:
        """All numbers, in the form of the state."""
        numbers = np.concatenate([getattr(self, name).ravel() for name in NUMBERS])
        return [packed(numbers.view(np.int64)), packed(np.concatenate([self.seen, self._looks.ravel()]))]

    @_kept.setter
    def _kept(self, texts: list[str]) -> None:
        numbers, counts = unpacked(texts[0]).view(np.float64), unpacked(texts[1])
        count = len(self.names)
        if len(numbers) != 6 * count or len(counts) != 3 * count:
            raise CorruptFile(f"state of {count} watched levels holds {len(numbers)} numbers; it is of other columns")
        if not np.isfinite(numbers).all() or (numbers[count : 4 * count] < 0).any() or (counts < 0).any():
            raise CorruptFile("state of watched levels holds deviations or counts that cannot be; it is damaged")
        self.usual, self.deviation = numbers[:count].copy(), numbers[count : 2 * count].copy()
        self._sums, self._totals = numbers[2 * count :].reshape(2, 2, count).copy()
        self.seen, self._looks = counts[:count].copy(), counts[count:].reshape(2, count).copy()
