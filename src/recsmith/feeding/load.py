"""How many workers a feed should have, of what its trainer waited and what its workers did."""

import math
import time

STALLED = 0.02  # share of the time that the trainer waited, above which workers are added
SPARE = 0.1  # share of the workers that must be idle beside the one that is taken away
CALM_ROUNDS = 4  # without waiting, after which one may be taken away


class Load:
    """How many workers keep a trainer from waiting: more as the waiting asks for, one fewer where many are idle.

    It looks at rounds of as many windows as there are workers. The first round after a change does not count, since
    workers take time to start.
    """

    def __init__(self) -> None:
        self.windows, self.rounds = 0, 0  # windows of this round; rounds since the last decision
        self.waited_s, self.at = 0.0, time.perf_counter()  # at the beginning of the round
        self.calm_idle_s, self.calm_at = 0.0, self.at  # at the beginning of the rounds that count

    def workers(self, count: int, most: int, waited_s: float, idle_s: float, now: float) -> int:
        """How many there should be after a window; all seconds since the start. idle_s: of all workers together."""
        self.windows += 1
        if self.windows < count:
            return count
        waiting = (waited_s - self.waited_s) / max(now - self.at, 1e-9)
        self.windows, self.rounds, self.waited_s, self.at = 0, self.rounds + 1, waited_s, now
        if self.rounds == 1:
            self.calm_idle_s, self.calm_at = idle_s, now
        elif waiting > STALLED:
            self.rounds = 0
            return min(most, math.ceil(count / max(1 - waiting, 0.5)))  # twice as many at most
        elif self.rounds > CALM_ROUNDS:
            self.rounds = 0
            idle = (idle_s - self.calm_idle_s) / max(now - self.calm_at, 1e-9)
            return count - 1 if idle - 1 > SPARE * count and count > 1 else count
        return count
