"""Alarms of a series: a detector, its threshold, and what to say of values that it cannot judge."""

import math
from collections.abc import Iterable

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.streaming.detectors import detector_of
from recsmith.streaming.detectors.plain_state import PlainState

EPISODE = 100  # values; what is unusual again within so many belongs to the alarm before it


@noun
class Alarm:
    """Something unusual in a series: at which of its values, counted from 0, what it was, and its score."""

    at: int
    value: float
    score: float


class AlarmingSeries(PlainState):
    """One series and its detector: add value after value; an alarm is the first of its episode.

    detector: a name or module:Class, with settings. threshold: of scores; none: the detector's. episode: values without
    an alarming one, after which the next alarms again.
    """

    STATE = ("detector", "seen", "last", "_calm")

    def __init__(
        self, detector: object = "ensemble", *, threshold: float | None = None, episode: int = EPISODE
    ) -> None:
        check_rules(
            None if threshold is None or math.isfinite(threshold) else f"threshold is {threshold}; it must be finite",
            None if episode >= 1 else f"episodes last {episode} values; they must last at least 1",
        )
        self.detector = detector_of(detector)
        self.threshold = self.detector.threshold if threshold is None else threshold
        self.episode = episode
        self.seen, self.last = 0, 0.0  # values that were added, and the newest score
        self._calm = episode  # values since an alarming one

    def add(self, value: float) -> Alarm | None:
        """The alarm that the next value raises, if it does; UsageError where the value is not finite."""
        if not math.isfinite(value):
            raise UsageError(f"value {self.seen:,} of the series is {value}; detectors take finite numbers alone")
        self.last = self.detector.score(value)
        self.seen += 1
        if self.last <= self.threshold:
            self._calm += 1
            return None
        new, self._calm = self._calm >= self.episode, 0
        return Alarm(at=self.seen - 1, value=value, score=self.last) if new else None


def find_alarms(values: Iterable[float], detector: object = "ensemble", *, threshold: float | None = None,
                episode: int = EPISODE, name: str = "the series") -> tuple[Alarm, ...]:  # fmt: skip
    """The alarms that a detector raises over a whole series. name: of the series, for errors.

    Raises:
        UsageError: a value is not finite, or there are no more values than the detector needs to begin with.
    """
    series = AlarmingSeries(detector, threshold=threshold, episode=episode)
    found = [alarm for value in values if (alarm := series.add(value)) is not None]
    if series.seen <= series.detector.warm:
        raise UsageError(
            f"{name} has {series.seen:,} values, and the detector judges none before it has seen "
            f"{series.detector.warm:,}; give a longer one, or the detector a smaller `warm`"
        )
    return tuple(found)
