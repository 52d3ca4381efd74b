"""One alarm an episode: what is unusual again soon after an alarm belongs to it."""

from recsmith.errors import check_rules
from recsmith.streaming.detectors.plain_state import PlainState


class AlarmEpisodes(PlainState):
    """Lets the highest scores of an episode through, so far; the others are 0.

    length: values without a higher score after which an episode is over.
    """

    STATE = ("_highest", "_since")

    def __init__(self, *, length: int = 100) -> None:
        check_rules(None if length >= 1 else f"episodes last {length} values; they must last at least 1")
        self.length = length
        self._highest, self._since = 0.0, 0

    def rise(self, score: float) -> float:
        """The score where it is the highest of its episode so far, else 0."""
        self._since += 1
        if self._since > self.length:
            self._highest = 0.0
        if score <= self._highest:
            return 0.0
        self._highest, self._since = score, 0
        return score
