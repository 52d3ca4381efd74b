"""A clock that counts only the time of steps, and stops during checkpoints, evaluation, scoring and planning.

All reported step times use it, so that a checkpoint does not look like a slow backward pass.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager


class StepClock:
    """Seconds spent in steps. A process has one clock, because it trains one job at a time."""

    def __init__(self) -> None:
        self._left_out, self._stands_since = 0.0, 0.0
        self._within = 0

    def now(self) -> float:
        """Seconds since an arbitrary moment, without the time for which the clock was stopped."""
        return (self._stands_since if self._within else time.perf_counter()) - self._left_out

    @property
    def runs(self) -> bool:
        """Whether the clock runs: steps are made, and nothing else is done."""
        return not self._within

    @contextmanager
    def standing(self) -> Generator[None]:
        """Within this context, the clock is stopped."""
        if not self._within:
            self._stands_since = time.perf_counter()
        self._within += 1
        try:
            yield
        finally:
            self._within -= 1
            if not self._within:
                self._left_out += time.perf_counter() - self._stands_since


class Stopwatch:
    """Total seconds and number of times that something was done. It is a context manager."""

    def __init__(self) -> None:
        self.seconds, self.times, self._begun = 0.0, 0, 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds, self.times = self.seconds + time.perf_counter() - self._begun, self.times + 1

    @property
    def mean_s(self) -> float:
        """Mean seconds of one time."""
        return self.seconds / max(self.times, 1)


STEPS = StepClock()
