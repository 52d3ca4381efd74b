"""How many workers a feed should have, of what its trainer waited and what its workers did."""

import time

STALLED = 0.02  # share of the time that the trainer waited, above which a worker is added
SPARE = 1.2  # idle workers, on average, above which one too many is there: the others can do its work
CALM_WINDOWS = 4  # of each worker without waiting, after which one may be taken away


class Load:
    """How many workers keep a trainer from waiting: one more where it waits, one fewer where many are idle."""

    def __init__(self) -> None:
        self.waited_s, self.at = 0.0, time.perf_counter()
        self.calm, self.calm_at, self.idle_s = 0, self.at, 0.0  # windows since nobody waited, and how it began

    def workers(self, count: int, most: int, waited_s: float, idle_s: float, now: float) -> int:
        """How many there should be after a window; all seconds since the start. idle_s: of all workers together."""
        waiting = (waited_s - self.waited_s) / max(now - self.at, 1e-9)
        self.waited_s, self.at, self.calm = waited_s, now, self.calm + 1
        if waiting > STALLED:
            self._begin_calm(idle_s)
            return min(count + 1, most)
        if self.calm < CALM_WINDOWS * count:
            return count
        idle = (idle_s - self.idle_s) / max(now - self.calm_at, 1e-9)
        self._begin_calm(idle_s)
        return count - 1 if idle > SPARE and count > 1 else count

    def _begin_calm(self, idle_s: float) -> None:
        self.calm, self.calm_at, self.idle_s = 0, self.at, idle_s
