"""What a detector is: it sees one value of a series after the other, and says how unusual each is.

    class Above(Detector):                                    # recsmith watch series.csv --detector my_detectors:Above
        def score(self, value: float) -> float: return max(0.0, value - 3)

A score is 0 where nothing is unusual, or too few values were seen to say so. It costs the same at the millionth value
as at the hundredth. One that knows a season may have season(): what each place of a period adds to values, from the
place of the first value on; what an alarm looks like is then told without it.
`AlarmEpisodes` (ensemble.py) makes alarms of scores.
"""

from typing import Protocol

from recsmith.files import Raw


class Detector(Protocol):
    """Scores the values of one series, in their order.

    warm: values that are seen before the first score. threshold: of its scores, above which a value is alarming.
    """

    warm: int = 100
    threshold: float = 4.0

    def score(self, value: float) -> float:
        """How unusual the next value is, given those before it: 0 or more, finite. value: finite."""
        ...

    def to_raw(self) -> Raw:
        """All that it has learned, as JSON data; a detector made with the same settings goes on from it."""
        ...

    def from_raw(self, raw: Raw) -> None:
        """Go on from there."""
        ...
