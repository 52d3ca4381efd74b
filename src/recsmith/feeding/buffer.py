"""The buffer between a feed's workers and the trainer: it assigns windows to workers and holds the finished parts.

One thread per worker asks the buffer for the next window and adds the parts that its worker made; the trainer's thread
takes the parts of its next step. One lock guards everything. A window's batches depend on its number alone, so a window
that was lost half-way is made again.
"""

import threading
import time
from dataclasses import dataclass

from recsmith.errors import RecSmithError
from recsmith.feeding.worker import StepPart

MOST_LOST = 5  # lost workers over the same window after which the feed fails, since that is no accident
POLL_S = 0.2  # seconds between a waiting thread's checks of whether it should stop


class Leases:
    """Assigns windows `first` to `last` - 1 to workers in order, fewer than `ahead` windows beyond the current one.

    If the current step has samples of more windows than that, all its windows are assigned. current: the first window
    of the current step. needed: the window after its last. held: the window that each worker is making, by worker
    number. whole: numbers of the finished windows.
    """

    def __init__(self, first: int, last: int, ahead: int) -> None:
        self.current, self.needed, self.last, self.ahead = first, first, last, ahead
        self.held: dict[int, int] = {}
        self.whole: set[int] = set()
        self._lost: dict[int, int] = {}

    def next_for(self, worker: int) -> int | None:
        """Assign the next window to a worker; None if it has to wait, or has a window already."""
        if worker in self.held:
            return None
        busy = set(self.held.values())
        for window in range(self.current, min(max(self.current + self.ahead, self.needed), self.last)):
            if window not in busy and window not in self.whole:
                self.held[worker] = window
                return window
        return None

    def complete(self, worker: int) -> None:
        """Mark a worker's window as finished."""
        self.whole.add(self.held.pop(worker))

    def lost(self, worker: int) -> int | None:
        """Release the window of a lost worker, so that it is made again; returns the window, or None if it had none.

        Raises:
            RecSmithError: MOST_LOST workers were lost over this window.
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
        """Note that the trainer is at a step with samples in windows `window` to `needed` - 1; drop earlier windows."""
        self.current, self.needed = max(self.current, window), max(self.needed, needed)
        self.whole = {each for each in self.whole if each >= self.current}


@dataclass
class Account:
    """Activity of a worker. heard: time of its last answer or lease. windows: number of windows that it made."""

    heard: float
    windows: int = 0


class Buffer:
    """The parts that workers have made and the trainer has not taken yet.

    used: slots of the epoch that the trainer has taken. samples: samples of this rank that it has taken. wanted: target
    number of workers. made: number of finished windows. lost: number of lost workers that were replaced. idle_s:
    seconds without a window to make, summed over all workers. accounts: activity of each worker, by number.
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
        """Seconds that the trainer has waited for parts, including a wait that is still going on."""
        since = self._waiting_since
        return self._waited_s + (0.0 if since is None else time.perf_counter() - since)

    # --- called by the trainer's thread -----------------------------------------------------------------------------

    def take(self, windows: range, first: int, last: int) -> list[StepPart]:
        """Wait for the parts of the step in slots first to last - 1, one per window, and take them.

        Raises an error that a worker reported.
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
        """Set the target number of workers; returns the numbers to start. Surplus workers end after their window."""
        with self.changed:
            self.wanted, self.leases.ahead = count, count + 1
            missing = [number for number in range(count) if number not in self.accounts]
            self.accounts |= {number: Account(heard=time.monotonic()) for number in missing}
            self.changed.notify_all()
            return missing

    def close(self) -> None:
        """Tell all waiting threads to end."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    # --- called by the threads of workers -----------------------------------------------------------------------------

    def lease(self, number: int) -> int | None:
        """Wait for the next window of a worker; None if the worker is to end."""
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
        """Store a part, unless the trainer has taken its step already, as happens when a lost window is made again."""
        with self.changed:
            self.accounts[number].heard = time.monotonic()
            if part.first >= self.used:
                self.parts[part.window, part.first] = part
                self.changed.notify_all()

    def complete(self, number: int) -> None:
        """Mark a worker's window as finished."""
        with self.changed:
            self.leases.complete(number)
            self.made += 1
            self.accounts[number].windows += 1
            self.changed.notify_all()

    def worker_lost(self, number: int) -> bool:
        """Release the window of a lost worker; returns whether to start another worker in its place."""
        with self.changed:
            if self.closed:
                return False
            self.lost += 1
            self.leases.lost(number)
            return True

    def fail(self, problem: BaseException) -> None:
        """Pass an error on to the trainer, which raises it at its next wait."""
        with self.changed:
            self._problem = problem
            self.changed.notify_all()
