"""Watched levels, all at once: what each is as a rule, and whether it moved.

A level is one number a look. It moved where its deviations from a moving mean add up (CUSUM: Page, "Continuous
Inspection Schemes", Biometrika 1954). One look alone, however far off, moves none.

n levels
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.plain_state import PlainState, by_places, places_of
from recsmith.streaming.hot_sets import packed, unpacked

WARM = 25  # values of a level whose mean and deviation it begins with
LEARN = 1 - 0.5 ** (1 / 60)  # weight of a value in mean and variance: half of it is of the last 60
CLIP = 3.0  # deviations by which one value can move the mean at most
SLACK, MOST, SUM = 1.0, 6.0, 8.0  # deviations of a look that count for nothing; that count at most; that are a move
SMALLEST = 1e-9  # a deviation, relative to the mean: of a level that is constant
Mask = npt.NDArray[np.bool_]
NUMBERS = ("usual", "deviation", "_sums", "_totals")  # what state keeps as floating-point numbers


class Levels(PlainState):
    """Levels by name. usual: their moving means (n,). run: looks of the present move, 0 where there is none (n,)."""

    STATE = ("_kept",)

    def __init__(self, names: Sequence[str]) -> None:
        self.names, count = tuple(names), len(names)
        self.usual, self.deviation = np.zeros(count), np.zeros(count)
        self.seen = np.zeros(count, np.int64)  # values, until what is usual is known
        self._sums, self._totals = np.zeros((2, count)), np.zeros((2, count))  # upwards and down: deviations, values
        self._looks = np.zeros((2, count), np.int64)  # that these are of

    @property
    def known(self) -> Mask:
        """Of which levels it is known what is usual (n,)."""
        return self.seen >= WARM

    @property
    def run(self) -> Ints:
        """Looks since the present move began (n,)."""
        return np.take_along_axis(self._looks, self._way[None], 0)[0]

    @property
    def now(self) -> Floats:
        """The mean of these looks (n,), or what is usual where nothing moves."""
        looks, totals = (np.take_along_axis(part, self._way[None], 0)[0] for part in (self._looks, self._totals))
        return np.where(looks > 0, totals / np.maximum(looks, 1), self.usual)

    @property
    def _way(self) -> Ints:
        return np.argmax(self._sums, axis=0)

    def add(self, values: Floats, noise: Floats) -> Mask:
        """Which levels moved, by their next values (n,); NaN is none. noise: the least that deviations can be (n,)."""
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
        """Learn values that were judged, outliers clipped."""
        reach = CLIP * self.deviation
        clipped = np.clip(distance, -reach, reach)
        self.usual = self.usual + np.where(judged, LEARN * clipped, 0.0)
        variance = (1 - LEARN) * self.deviation**2 + LEARN * clipped**2
        least = SMALLEST * (1 + np.abs(self.usual))
        self.deviation = np.where(judged, np.maximum(np.sqrt(variance), least), self.deviation)

    def _begin(self, first: Mask, values: Floats) -> None:
        """Learn first values: mean and deviation of them all (Welford)."""
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

    def told(self, places: Ints) -> None:
        """Begin to add up anew."""
        self._sums[:, places], self._looks[:, places], self._totals[:, places] = 0.0, 0, 0.0

    def with_names(self, names: Sequence[str], anew: str) -> "Levels":
        """The same of other names; what is usual of new ones is not known, and is learned of one anew."""
        made, places, fresh = Levels(names), places_of(names, self.names), Levels(("",))
        places[names.index(anew)] = -1
        for name in (*NUMBERS, "seen", "_looks"):
            kept = getattr(self, name)
            setattr(made, name, by_places(kept, places, getattr(fresh, name), kept.ndim - 1))
        return made

    @property
    def _kept(self) -> list[str]:
        """All numbers, as state keeps them."""
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
