"""Updates that are passes over samples, of the new period alone or of the last periods together."""

from recsmith.errors import UsageError
from recsmith.training.systems.periods.updates.protocol import Update


class Incremental(Update):
    """Each sample is trained on once, in its period."""


class WindowUpdate(Update):
    """Each new period is trained on together with the periods before it, shuffled: batch update over a sliding window.

    periods: number of periods, including the new one; at the start of the stream, as many as there are. Each new period
    costs as many steps as the whole window has.
    """

    def __init__(self, *, periods: int = 3) -> None:
        if periods < 2:
            raise UsageError(f"data.periods.update.periods is {periods}; 2 or more, or write incremental")
        self.window = periods
