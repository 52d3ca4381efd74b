"""The protocol of detectors: a detector gets the values of a series one by one and scores how unusual each is.

    class Above(Detector):                                    # recsmith watch series.csv --detector my_detectors:Above
        def score(self, value: float) -> float: return max(0.0, value - 3)

A score is 0 if nothing is unusual, or too few values were seen. Its cost does not grow with the number of values. A
detector that learns a season may have a method season(), which returns the seasonal component by position in a period,
starting with the position of the first value; it is then subtracted when alarms are described.
`AlarmEpisodes` (ensemble.py) turns scores into one alarm per episode.
"""

from typing import Protocol

from recsmith.files import Raw

LEAST_HALF_LIFE = 0.1  # values; with shorter ones, weights of new values overflow


def half_life_rule(half_life: float) -> str | None:
    """Message for a half-life that is too short for a detector; None if it is long enough."""
    kept = half_life >= LEAST_HALF_LIFE
    return None if kept else f"half_life is {half_life}; it must be at least {LEAST_HALF_LIFE} values"


class Detector(Protocol):
    """Scores the values of one series, in order.

    warm: number of values that are seen before the first score. threshold: a value with a score above it is alarming.
    """

    warm: int = 100
    threshold: float = 4.0

    def score(self, value: float) -> float:
        """How unusual the next value is, given those before it: 0 or more, finite. value: finite."""
        ...

    def to_raw(self) -> Raw:
        """The detector's state as JSON data; a detector with the same settings can continue from it."""
        ...

    def from_raw(self, raw: Raw) -> None:
        """Restore the state from data of `to_raw`."""
        ...
