"""The update that stands for whichever one pays, as measured on the stream's first periods (deciding.py)."""

from typing import Any

from recsmith.errors import UsageError
from recsmith.training.systems.periods.updates.protocol import Update


class AutoUpdate(Update):
    """The cheapest of incremental, window and future_gradient whose loss is not worse than the best by its interval.

    periods: number of periods from which window and future_gradient learn. replayed: number of first periods of the
    stream that each update learns before the stream is trained.
    """

    def __init__(self, *, periods: int = 3, replayed: int = 16) -> None:
        self.least = periods + 5
        if replayed < self.least:
            raise UsageError(
                f"data.periods.update (auto): replayed is {replayed} and periods {periods}; replay at least "
                f"{self.least}, since the first {periods + 1} say nothing of what they learn from"
            )
        self.mixed, self.replayed = periods, replayed
        self.arms: dict[str, Any] = {
            "incremental": "incremental",
            "window": {"name": "window", "periods": periods},
            "future_gradient": {"name": "future_gradient", "periods": periods},
        }
