"""What lies between the workers of a feed and its trainer: which window each worker makes, and the parts that are made.

One thread for each worker asks here which window is next and brings what was made; the trainer's thread takes the parts
of its next step. Everything is guarded by one lock. A window's batches follow from its number, so one that was lost
half-way is simply made again.
"""

import threading
import time
from dataclasses import dataclass

from recsmith.errors import RecSmithError
from recsmith.feeding.worker import StepPart

MOST_LOST = 5  # workers over the same window: then it is no accident
POLL_S = 0.2  # seconds after which a waiting thread looks whether it is still wanted


class Leases:
    """Windows `first` to `last` - 1, given to workers in their order, no further than `ahead` before the one in use.

    A step may have samples of more windows than that; then all of its own are given. current: the window in use.
    needed: the first window that the step in use has no samples of. held: window of each worker. whole: windows that
    are complete.
    """

    def __init__(self, first: int, last: int, ahead: int) -> None:
        self.current, self.needed, self.last, self.ahead = first, first, last, ahead
        self.held: dict[int, int] = {}
        self.whole: set[int] = set()
        self._lost: dict[int, int] = {}

    def next_for(self, worker: int) -> int | None:
        """The window that a worker is to make now; None where it has to wait, or has one already."""
        if worker in self.held:
            return None
        busy = set(self.held.values())
        for window in range(self.current, min(max(self.current + self.ahead, self.needed), self.last)):
            if window not in busy and window not in self.whole:
                self.held[worker] = window
                return window
        return None

    def complete(self, worker: int) -> None:
        """A worker has made its window."""
        self.whole.add(self.held.pop(worker))

    def lost(self, worker: int) -> int | None:
        """A worker is gone; the window that has to be made anew, if it had one.

        Raises:
            RecSmithError: so many were lost over this window that it is no accident.
        """
        window = self.held.pop(worker, None)
        if window is not None:
            self._lost[window] = self._lost.get(window, 0) + 1
            if self._lost[window] >= MOST_LOST:
                raise RecSmithError(
                    f"{MOST_LOST} workers of the feed ended one after the other over the same window of samples; is "
                    "there memory for them? (feed: 1 starts one, data.window: 16384 makes windows smaller)"
                )
        return window

    def use(self, window: int, needed: int = 0) -> None:
        """The trainer has come to a step of windows `window` to `needed` - 1; those before are done with."""
        self.current, self.needed = max(self.current, window), max(self.needed, needed)
        self.whole = {each for each in self.whole if each >= self.current}


@dataclass
class Account:
    """What a worker has done. heard: when it was last heard of. windows: that it made."""

    heard: float
    windows: int = 0


class Buffer:
    """Parts between workers and a trainer.

    used: slots that the trainer has taken. samples: of the rank that it has taken. wanted: how many workers there
    should be. made: windows. lost: workers that were replaced. idle_s: seconds in which workers had no window to make,
    added up over all of them. accounts: of each worker, by its number.
    """

    def __init__(self, leases: Leases, used: int) -> None:
        self.leases, self.used, self.samples = leases, used, 0
        self.wanted, self.made, self.lost, self.idle_s = 0, 0, 0, 0.0
        self.accounts: dict[int, Account] = {}
        self.closed = False
        self.changed = threading.Condition()
        self.parts: dict[tuple[int, int], StepPart] = {}
        self._waited_s = 0.0
        self._waiting_since: float | None = None
        self._problem: BaseException | None = None

    @property
    def waited_s(self) -> float:
        """Seconds that the trainer has waited, those of a step that it waits for included."""
        since = self._waiting_since
        return self._waited_s + (0.0 if since is None else time.perf_counter() - since)

    # --- what the trainer's thread does -----------------------------------------------------------------------------

    def take(self, windows: range, first: int, last: int) -> list[StepPart]:
        """The parts of the step of slots first to last - 1, one of each window, once all are there.

        Raises what went wrong in a worker.
        """
        keys = [(window, first) for window in windows]
        with self.changed:
            self._waiting_since = time.perf_counter()
            self.leases.use(windows.start, windows.stop)
            self.changed.notify_all()
            try:
                while not all(key in self.parts for key in keys):
                    if self._problem is not None:
                        raise self._problem
                    self.changed.wait(POLL_S)
            finally:
                self._waited_s, self._waiting_since = self.waited_s, None
            parts = [self.parts.pop(key) for key in keys]
            self.used = last
            self.samples += sum(len(part.samples) for part in parts)
            return parts

    def want(self, count: int) -> list[int]:
        """Have so many workers; numbers of those to start. One that is too many ends once it has made its window."""
        with self.changed:
            self.wanted, self.leases.ahead = count, count + 1
            missing = [number for number in range(count) if number not in self.accounts]
            self.accounts |= {number: Account(heard=time.monotonic()) for number in missing}
            self.changed.notify_all()
            return missing

    def close(self) -> None:
        """Nobody wants anything any more."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    # --- what the thread of a worker asks -----------------------------------------------------------------------------

    def lease(self, number: int) -> int | None:
        """The next window of a worker, as soon as there is one; None where it is to end."""
        with self.changed:
            while not self.closed:
                if number >= self.wanted:
                    self.accounts.pop(number, None)
                    return None
                window = self.leases.next_for(number)
                if window is not None:
                    self.accounts[number].heard = time.monotonic()
                    return window
                begun = time.perf_counter()
                self.changed.wait(POLL_S)
                self.idle_s += time.perf_counter() - begun
        return None

    def keep(self, number: int, part: StepPart) -> None:
        """A part has come. Those of steps that are given already come again when a worker was lost, and are dropped."""
        with self.changed:
            self.accounts[number].heard = time.monotonic()
            if part.first >= self.used:
                self.parts[part.window, part.first] = part
                self.changed.notify_all()

    def complete(self, number: int) -> None:
        """A worker has made its window."""
        with self.changed:
            self.leases.complete(number)
            self.made += 1
            self.accounts[number].windows += 1
            self.changed.notify_all()

    def worker_lost(self, number: int) -> bool:
        """A worker is gone; whether another one is to take its place."""
        with self.changed:
            if self.closed:
                return False
            self.lost += 1
            self.leases.lost(number)
            return True

    def fail(self, problem: BaseException) -> None:
        """Have the trainer hear of what went wrong."""
        with self.changed:
            self._problem = problem
            self.changed.notify_all()
