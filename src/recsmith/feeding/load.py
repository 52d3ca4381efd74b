"""How many workers a feed should have, of what its trainer waited and what its workers did."""

import time

STALLED = 0.02  # share of the time that the trainer waited, above which a worker is added
SPARE = 1.2  # idle workers, on average, above which one too many is there: the others can do its work
CALM_WINDOWS = 4  # windows in a row with so many to spare, after which one is taken away


class Load:
    """How many workers keep a trainer from waiting: one more where it waits, one fewer where many are idle."""

    def __init__(self) -> None:
        self.waited_s, self.idle_s, self.at, self.calm = 0.0, 0.0, time.perf_counter(), 0

    def workers(self, count: int, most: int, waited_s: float, idle_s: float, now: float) -> int:
        """How many there should be after a window; all seconds since the start. idle_s: of all workers together."""
        elapsed_s = max(now - self.at, 1e-9)
        waiting, idle = (waited_s - self.waited_s) / elapsed_s, (idle_s - self.idle_s) / elapsed_s
        self.waited_s, self.idle_s, self.at = waited_s, idle_s, now
        if waiting > STALLED:
            self.calm = 0
            return min(count + 1, most)
        self.calm = self.calm + 1 if idle > SPARE else 0
        if self.calm >= CALM_WINDOWS and count > 1:
            self.calm = 0
            return count - 1
        return count
