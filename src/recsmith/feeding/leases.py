"""Which worker makes which window: the bookkeeping of a feed, without processes.

A window's batches follow from its number, so one that was lost half-way is simply made again.
"""

from recsmith.errors import RecSmithError

MOST_LOST = 5  # workers over the same window: then it is no accident


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
