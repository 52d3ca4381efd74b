"""Which trainers there are, as server 0 knows it: they gather, step together, and one that is silent is left out.

A step is committed when every trainer has pushed it to every server. Until then no server applies any of it, so that a
step during which a trainer dies is trained once more by the others, and by halves on no server.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from recsmith.errors import RecSmithError

HOLD = 0.25  # of the timeout: a server keeps a caller waiting for so long at most, who then asks again


@dataclass
class Members:
    """The trainers of a job. wanted: that gather before it begins. timeout_s: of silence, after which one is gone."""

    wanted: int
    timeout_s: float
    generation: int = 0
    step: int = 0  # committed so far
    ranks: dict[str, int] = field(default_factory=dict[str, int])  # of this generation
    lost: list[str] = field(default_factory=list[str])  # trainers that were left out

    def __post_init__(self) -> None:
        self._turn = threading.Condition()
        self._heard = dict[str, float]()
        self._here, self._arrived, self._left = dict[str, None](), set[str](), set[str]()
        self._regroup = True

    def alive(self, name: str) -> None:
        """A trainer says that it lives."""
        with self._turn:
            self._heard[name] = time.monotonic()

    def gather(self, name: str) -> dict[str, Any] | None:
        """Its rank among the trainers, once all are here; None: ask again."""
        with self._turn:
            self._heard[name] = time.monotonic()
            if name in self.ranks and not self._regroup:
                return self._place(name)
            self._regroup = True
            self._here[name] = None
            self._turn.notify_all()
            self._wait(lambda: name in self.ranks and not self._regroup, self._all_here)
            return self._place(name) if name in self.ranks and not self._regroup else None

    def commit(self, name: str, generation: int, step: int) -> str | None:
        """`committed` once all trainers have pushed the step after `step`, or `regroup`; None: ask again."""
        with self._turn:
            self._heard[name] = time.monotonic()
            if step < self.step:
                return "committed"
            if generation != self.generation or self._regroup:
                return "regroup"
            self._arrived.add(name)
            if self._arrived >= self.ranks.keys():
                self.step, self._arrived = self.step + 1, set()
                self._turn.notify_all()
                return "committed"
            self._wait(lambda: self.step > step or self._regroup, self._drop_silent)
            return "committed" if self.step > step else "regroup" if self._regroup else None

    def changed(self, name: str, generation: int) -> bool | None:
        """Whether the trainers of a generation have changed; None: ask again."""
        with self._turn:
            self._heard[name] = time.monotonic()
            self._wait(lambda: self._regroup or generation != self.generation, self._drop_silent)
            return True if self._regroup or generation != self.generation else None

    def leave(self, name: str) -> None:
        """A trainer is done, and nobody waits for it any more."""
        with self._turn:
            self.ranks.pop(name, None)
            self._left.add(name)
            self._turn.notify_all()

    def _place(self, name: str) -> dict[str, Any]:
        return {
            "rank": self.ranks[name], "world": len(self.ranks), "generation": self.generation, "step": self.step,
            "lost": self.lost,
        }  # fmt: skip

    def _wait(self, done: Any, look: Any) -> None:
        """Wait until it is done, for a while, and look again and again."""
        until = time.monotonic() + HOLD * self.timeout_s
        while not done():
            look()
            if done() or time.monotonic() > until:
                return
            self._turn.wait(min(0.1, HOLD * self.timeout_s))

    def _silent(self) -> list[str]:
        now = time.monotonic()
        return [name for name in self.ranks if now - self._heard.get(name, now) > self.timeout_s]

    def _drop_silent(self) -> None:
        """Begin a new generation where a trainer is silent for too long."""
        for name in self._silent():
            self.lost.append(name)
            del self.ranks[name]
            self._regroup = True
            self._turn.notify_all()

    def _all_here(self) -> None:
        """Make a generation of those who are here, once everybody is who lives."""
        self._drop_silent()
        expected = set(self.ranks) if self.generation else set[str]()
        if not self._regroup or len(self._here) < (1 if self.generation else self.wanted) or expected - set(self._here):
            return
        ordered = sorted(self._here, key=lambda name: self.ranks.get(name, len(self.ranks)))  # newcomers are last
        self.ranks = {name: rank for rank, name in enumerate(ordered)}
        self.generation += 1
        self._here, self._arrived, self._regroup = {}, set(), False
        self._turn.notify_all()


class Regroup(RecSmithError):
    """The trainers have changed, and those that live gather again."""
