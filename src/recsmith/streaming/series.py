"""Alarms of a series: a detector, its threshold, and what to say of values that it cannot judge."""

import math
from collections.abc import Iterable
from dataclasses import field
from numbers import Real

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.streaming.detectors import detector_of, season_of, settings_of
from recsmith.streaming.detectors.ensemble import FAR
from recsmith.streaming.detectors.plain_state import PlainState

LARGEST = 1e150  # of a value: detectors square what they see
LEARN = 0.02  # weight of a value in the mean of those that do not alarm
SMALLER = {
    "warm": ", or the detector a smaller `warm` (--set warm=20)",
    "learn": ", or the detector a smaller `learn`, of two periods at least",
}
"""What is said to who gives too few values, by the setting that says how many a detector begins with."""
EPISODE = 100  # values; what is unusual again within so many belongs to the alarm before it


@noun
class Alarm:
    """Something unusual in a series: at which of its values, counted from 0, what it was, and its score.

    season: what a value's place in a period adds to it, as the detector knew it then, from the place of the series'
    first value on; () where the detector knows no season.
    """

    at: int
    value: float
    score: float
    season: tuple[float, ...] = field(default=(), repr=False)


class AlarmingSeries(PlainState):
    """One series and its detector: add value after value; an alarm is the first of its episode, or far worse than it.

    detector: a name or module:Class, with settings. threshold: of scores; none: the detector's. episode: values without
    an alarming one, after which the next alarms again.
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
        self.seen, self.last = 0, 0.0  # values that were added, and the newest score
        self._calm = episode  # values since an alarming one
        self._usual: float | None = None  # a moving mean of values that do not alarm
        self._farthest = 0.0  # how far from it values of the episode were

    def add(self, value: float) -> Alarm | None:
        """The alarm that the next value raises, if it does; UsageError where the value is no number, or too large."""
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
    """Whether detectors take a value: a finite number, of which squares are finite, too."""
    return isinstance(value, Real) and not isinstance(value, bool) and -LARGEST <= float(value) <= LARGEST


def find_alarms(values: Iterable[float], detector: object = "ensemble", *, threshold: float | None = None,
                episode: int = EPISODE, name: str = "the series") -> tuple[Alarm, ...]:  # fmt: skip
    """The alarms that a detector raises over a whole series. name: of the series, for errors.

    Raises:
        UsageError: a value is no finite number up to 1e150, or there are no more values than the detector begins with.
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
