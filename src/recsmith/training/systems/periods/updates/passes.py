"""Updates that are passes over samples: of the new period alone, or of the last periods together."""

from recsmith.errors import UsageError
from recsmith.training.systems.periods.updates.protocol import Update


class Incremental(Update):
    """Each sample is trained on once, in its period."""


class WindowUpdate(Update):
    """Each new period is trained on together with those before it, shuffled: batch update over a sliding window.

    periods: how many, the new one among them; of the first periods, as many as there are. A period costs as many steps
    as all of them have.
    """

    def __init__(self, *, periods: int = 3) -> None:
        if periods < 2:
            raise UsageError(f"data.periods.update.periods is {periods}; 2 or more, or write incremental")
        self.window = periods
