"""How many workers a feed should have, of what its trainer waited."""

import time

STALLED = 0.02  # share of the time that the trainer waited, above which a worker is added
CALM_WINDOWS = 4  # windows in a row without waiting, after which one is taken away


class Load:
    """How many workers keep a trainer from waiting: one more where it waits, one fewer where none has waited long."""

    def __init__(self) -> None:
        self.waited_s, self.at, self.calm = 0.0, time.perf_counter(), 0

    def workers(self, count: int, most: int, waited_s: float, now: float) -> int:
        """How many there should be, of the window that was just used up."""
        share = (waited_s - self.waited_s) / max(now - self.at, 1e-9)
        self.waited_s, self.at = waited_s, now
        if share > STALLED:
            self.calm = 0
            return min(count + 1, most)
        self.calm += 1
        if self.calm >= CALM_WINDOWS and count > 1:
            self.calm = 0
            return count - 1
        return count
