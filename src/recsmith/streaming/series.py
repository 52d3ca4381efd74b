"""Raises alarms on a series with a detector and a threshold, and refuses values that detectors cannot score."""

import math
from collections.abc import Iterable
from dataclasses import field
from numbers import Real

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.streaming.detectors import detector_of, season_of, settings_of
from recsmith.streaming.detectors.ensemble import FAR
from recsmith.streaming.detectors.plain_state import PlainState

LARGEST = 1e150  # largest absolute value, since detectors square values
LEARN = 0.02  # weight of a new value in the moving mean of values without an alarm
SMALLER = {
    "warm": ", or the detector a smaller `warm` (--set warm=20)",
    "learn": ", or the detector a smaller `learn`, of two periods at least",
}
"""Advice if a series is too short, by the detector setting that determines how many values it needs at first."""
EPISODE = 100  # values; an unusual value within this many after an alarming one belongs to the same alarm


@noun
class Alarm:
    """An alarm at a value of a series: its index from 0, the value, and its score.

    season: the seasonal component for each position in a period, as the detector knew it at the alarm; the first entry
    is for the series' first value. Empty if the detector knows no season.
    """

    at: int
    value: float
    score: float
    season: tuple[float, ...] = field(default=(), repr=False)


class AlarmingSeries(PlainState):
    """A series with its detector, to which values are added; alarms come once per episode, or again if far worse.

    detector: a name or module:Class, with settings. threshold: scores above it are alarming; none: the detector's.
    episode: number of values without an alarming one after which an episode is over, so that the next alarms again.
    """

    STATE, ADDED = ("detector", "seen", "last", "_calm", "_usual", "_farthest"), ("_usual", "_farthest")

    def __init__(
        self, detector: object = "ensemble", *, threshold: float | None = None, episode: int = EPISODE
    ) -> None:
        check_rules(
            None
            if threshold is None or 0 <= threshold < math.inf
            else f"threshold is {threshold}; it must be finite, and 0 or more as scores are",
            None if episode >= 1 else f"episodes last {episode} values; they must last at least 1",
        )
        self.detector = detector_of(detector)
        self.threshold = self.detector.threshold if threshold is None else threshold
        self.episode = episode
        self.seen, self.last = 0, 0.0  # number of added values, and the newest score
        self._calm = episode  # number of values since an alarming one
        self._usual: float | None = None  # moving mean of values that do not alarm
        self._farthest = 0.0  # largest distance from the mean in this episode

    def add(self, value: float) -> Alarm | None:
        """Add the next value; returns its alarm, if it raises one. UsageError if it is no finite number up to 1e150."""
        if not is_judged(value):
            raise UsageError(
                f"value {self.seen:,} of the series is {value!r:.80}; detectors take finite numbers up to {LARGEST:g}"
            )
        value = float(value)
        self.last = self.detector.score(value)
        self.seen += 1
        if self._usual is None:
            self._usual = value
        if self.last <= self.threshold:
            self._calm += 1
            self._usual += LEARN * (value - self._usual)
            return None
        distance, over = abs(value - self._usual), self._calm >= self.episode
        new, self._calm = over or distance > FAR * self._farthest, 0
        self._farthest = distance if over else max(distance, self._farthest)
        return Alarm(at=self.seen - 1, value=value, score=self.last, season=season_of(self.detector)) if new else None


def is_judged(value: object) -> bool:
    """Whether detectors can score a value: it must be a finite number up to LARGEST, so that its square is finite."""
    return isinstance(value, Real) and not isinstance(value, bool) and -LARGEST <= float(value) <= LARGEST


def find_alarms(values: Iterable[float], detector: object = "ensemble", *, threshold: float | None = None,
                episode: int = EPISODE, name: str = "the series") -> tuple[Alarm, ...]:  # fmt: skip
    """The alarms that a detector raises over a whole series.

    detector, threshold, episode: as in AlarmingSeries. name: the name of the series, for errors.

    Raises:
        UsageError: a value is no finite number up to 1e150, or the series is too short for the detector.
    """
    series = AlarmingSeries(detector, threshold=threshold, episode=episode)
    found = [alarm for value in values if (alarm := series.add(value)) is not None]
    if series.seen <= series.detector.warm:
        own = settings_of(series.detector)
        less = next((said for setting, said in SMALLER.items() if setting in own), "")
        raise UsageError(
            f"{name} has {series.seen:,} values, and the detector judges none before it has seen "
            f"{series.detector.warm:,}; give a longer one{less}"
        )
    return tuple(found)
