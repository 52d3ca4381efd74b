"""Leases of batches, which server 0 gives to trainers that do not keep step, within a bounded lag.

Batches are numbered in the order of the data; W of them, one for each trainer that the job began with, are a step. A
trainer leases the next batch as soon as it is done with its last, so a slow one takes fewer. The bound is that of
stale-synchronous parallel training (Ho et al., NeurIPS 2013): a leased batch is at most s steps ahead of the oldest
batch that is not pushed yet, so no pulled row lacks gradients of steps further back.
"""

import time
from collections import Counter
from typing import Any

from recsmith.training.systems.remote.calls import LONG
from recsmith.training.systems.remote.members import HOLD, JOINER, HeardTrainers


class BatchLeases(HeardTrainers):
    """The leases of a job. width: W. staleness: s. every: batches between two checkpoints; None: no checkpoints.

    first: the first batch that is not trained yet. total: number of batches of the job; None if unknown.
    """

    def __init__(
        self, width: int, staleness: int, timeout_s: float, every: int | None = None, first: int = 0,
        total: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(timeout_s)
        self.width, self.staleness, self.every, self.first, self.total = width, staleness, every, first, total
        self.lags = Counter[int]()  # steps by which rows lagged behind -> number of batches
        self.repeated = 0  # batches trained again, because their trainer was left out
        self.stopped, self.kept = False, first  # whether a signal ended the job; batches before this one are saved
        self._next, self._saved, self._saver = first, first, ""
        self._taken, self._orphans = dict[int, str](), list[int]()  # batch -> its trainer; batches that lost theirs
        self._begun, self._ended = 0.0, 0.0
        self._chief = ""  # name of the trainer that writes the model
        self._since = dict[str, float]()  # when each trainer was given its current work

    @property
    def oldest(self) -> int:
        """The first batch that is not pushed yet."""
        return min([*self._taken, *self._orphans, self._next])

    def leave(self, name: str) -> None:
        """Note that a trainer is done, so that nobody waits for it any more."""
        with self._turn:
            self._gone(name)

    def lease(self, name: str) -> dict[str, Any] | None:
        """The next work of a trainer: train a `batch`, `save` the state before a batch, or `end`; None: ask again."""
        with self._turn:
            self.hear(name)
            self._note_joined([name])
            self._begun = self._begun or time.monotonic()
            made: dict[str, Any] | None = None

            def look() -> None:
                nonlocal made
                self.drop_silent()
                made = made or self.found(name)

            self.wait(lambda: made is not None, look)
            self._since[name] = time.monotonic()
            return made

    def drop_silent(self) -> None:
        """Leave out silent trainers, and those that got a batch or were asked to save LONG times the timeout ago."""
        super().drop_silent()
        last = time.monotonic() - LONG * self.timeout_s
        self._drop({each for each in {*self._taken.values(), self._saver} if self._since.get(each, last) < last})

    def push(self, name: str, batch: int) -> None:
        """Note that a trainer has pushed a batch to all servers."""
        with self._turn:
            self.hear(name)
            if self._taken.get(batch) == name:
                del self._taken[batch]
            self._ended = time.monotonic()
            self._turn.notify_all()

    def saved(self, _: str, batch: int, well: bool = True) -> None:
        """Note that the state before a batch was saved, or could not be written (not `well`); it is not tried again."""
        with self._turn:
            self._saved, self._saver = batch, ""
            self.kept = batch if well else self.kept
            self._turn.notify_all()

    def end_at(self, _: str, batch: int) -> None:
        """End the job before a batch: the data ends there, as its trainer has found, or the job was asked to end."""
        with self._turn:
            self.total = batch if self.total is None else min(self.total, batch)
            self._taken = {each: who for each, who in self._taken.items() if each < self.total}
            self._orphans = [each for each in self._orphans if each < self.total]
            self._next = min(self._next, self.total)
            self._turn.notify_all()

    def stop(self, name: str, signal: bool) -> None:
        """End the job after the step that is under way. signal: whether a signal asked for it, not a watcher."""
        self.stopped |= signal
        self.end_at(name, -(-self._next // self.width) * self.width)

    def drained(self, name: str) -> dict[str, Any] | None:
        """The job's result, once all batches are trained and every trainer was heard; None: ask again.

        All trainers are awaited because trainer 0 truncates the log when it starts, at the step that the job continues
        from, and so would delete lines of other trainers if they had ended the job before.

        mine: whether this trainer writes the model. step: the last step. saved: the step of the newest checkpoint.
        ended: whether a signal ended the job.
        """
        with self._turn:
            self.hear(name)
            self.drop_silent()
            if self.total is None or self.oldest < self.total or not self._all_came():
                self._turn.wait(min(0.1, HOLD * self.timeout_s))
                return None
            self._chief = self._chief or min(self._heard)
            return {
                "mine": name == self._chief, "step": self.total // self.width, "saved": self.kept // self.width,
                "ended": self.stopped, "told": self._told(),
            }  # fmt: skip

    def _all_came(self) -> bool:
        """Whether each trainer that the job began with was heard or has ended; waits LONG times the timeout at most."""
        came = {each for each in {*self._heard, *self._done, *self.lost} if not each.startswith(JOINER)}
        waited = time.monotonic() - max(self._begun, self._ended)
        return len(came) >= self.width or waited > LONG * self.timeout_s

    def _told(self) -> dict[str, Any]:
        return {
            "batches": self.oldest - self.first, "seconds": self._ended - self._begun, "repeated": self.repeated,
            "lags": {str(lag): count for lag, count in sorted(self.lags.items())}, **self.changes(),
        }  # fmt: skip

    def found(self, name: str) -> dict[str, Any] | None:
        """The work that a trainer may take now; None if there is none."""
        if self._orphans:
            return self._take(self._orphans.pop(0), name)
        if self.total is not None and self._next >= self.total:
            return self._at_the_end(name)
        if self.every and self._next - self._saved >= self.every:
            if self._taken or self._saver:
                return None
            self._saver = name
            return {"save": self._next}
        if self._next // self.width - self.oldest // self.width > self.staleness:
            return None
        self._next += 1
        return self._take(self._next - 1, name)

    def _at_the_end(self, name: str) -> dict[str, Any] | None:
        if self._taken or self._saver:
            return None
        if self.every and self._saved < self._next:
            self._saver = name
            return {"save": self._next}
        return {"end": self.total}

    def _take(self, batch: int, name: str) -> dict[str, Any]:
        self._taken[batch] = name
        lag = batch // self.width - self.oldest // self.width
        self.lags[lag] += 1
        return {"batch": batch, "lag": lag}

    def dropped(self, name: str) -> None:
        """Give the batches of a trainer that was left out to other trainers."""
        mine = [batch for batch, who in self._taken.items() if who == name]
        self.repeated += len(mine)
        self._orphans += mine
        self._taken = {batch: who for batch, who in self._taken.items() if who != name}
        self._saver = "" if self._saver == name else self._saver
        self._chief = "" if self._chief == name else self._chief
