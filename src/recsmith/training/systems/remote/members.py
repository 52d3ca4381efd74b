"""The trainers of a job, as server 0 knows them: they gather, step together, and a silent one is left out.

A step is committed when every trainer has pushed it to every server. Until then no server applies any of it. So if a
trainer dies during a step, the others train it again, and no server has applied half of it.
"""

import fcntl
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from recsmith.training.systems.remote.calls import LONG, LeftOut, Regroup

ENDED = "ended"  # file in the folder of a process that has ended before the job was done
ALIVE = "alive"  # file in the folder of a trainer that joined, locked by its process while it lives
JOINER = "trainer-joined-"  # prefix of the names of trainers that join
HOLD = 0.25  # fraction of the timeout that a server keeps a caller waiting at most; it then asks again


def ended_in(processes: Path) -> set[str]:
    """Names of this machine's trainers that have ended before the job was done, or that joined and ended."""
    ended = {each.parent.name for each in processes.glob(f"trainer-*/{ENDED}")}
    return ended | {each.parent.name for each in processes.glob(f"{JOINER}*/{ALIVE}") if _is_free(each)}


def _is_free(lock: Path) -> bool:
    with suppress(OSError), lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


class HeardTrainers:
    """The trainers that server 0 hears. timeout_s: seconds of silence after which a trainer is left out for good.

    ended: returns names of trainers whose process is known to have ended, heard before or not; nobody waits for them.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.ended: Callable[[], set[str]] = set
        self.lost: list[str] = []  # names of trainers that were left out
        self.joined: list[str] = []  # names of trainers that joined; `left`: those of them that left when asked to end
        self.left: list[str] = []
        self._done = set[str]()  # trainers that have left, from which nothing more is expected
        self._turn = threading.Condition()
        self._heard = dict[str, float]()
        self._looked = self._newest = time.monotonic()

    def alive(self, name: str, generation: int = 0) -> dict[str, Any]:
        """Note that a trainer lives; returns `changes`, and whether a trainer of its generation was left out."""
        with self._turn:
            self.hear(name)
            self.drop_silent()
            return {**self.changes(), "broken": self.lacks_one(generation)}

    def changes(self) -> dict[str, Any]:
        """Which trainers were lost, joined and left, in order, and how many train now."""
        return {"lost": self.lost, "joined": self.joined, "left": self.left, "trainers": self.training()}

    def training(self) -> int:
        """Number of trainers that train now."""
        return len(self._heard)

    def depart(self, name: str) -> None:
        """Note that a trainer that joined leaves before the job is done; the others go on."""
        with self._turn:
            self._gone(name)
            self.left.append(name)
            self.dropped(name)
            self._turn.notify_all()

    def _gone(self, name: str) -> None:
        """Expect nothing more from a trainer."""
        self._heard.pop(name, None)
        self._done.add(name)

    def _note_joined(self, names: Iterable[str]) -> None:
        """Note which of these training trainers have joined."""
        self.joined += [each for each in names if each.startswith(JOINER) and each not in self.joined]

    def lacks_one(self, generation: int) -> bool:
        """Whether a trainer of this generation was left out."""
        del generation
        return False

    def hear(self, name: str) -> None:
        """Note that a trainer lives.

        Raises:
            LeftOut: the trainer was left out before.
        """
        if name in self.lost:
            raise LeftOut(
                f"{name} was silent for more than {self.timeout_s:g} s (remote.timeout_s), or the others waited "
                f"{LONG} times as long for its work, and they go on without it; to add a trainer, run "
                "`recsmith train` with --join"
            )
        self._newest = time.monotonic()
        if name not in self._done:
            self._heard[name] = self._newest

    def deserted(self) -> bool:
        """Whether no trainer was heard for LONG times the timeout, for example because all of them are stopped."""
        return time.monotonic() - self._newest > LONG * self.timeout_s

    def drop_silent(self) -> None:
        """Leave out trainers that have ended or were silent too long; a pause of this server counts as no silence."""
        now, before = time.monotonic(), self._looked
        self._looked = now
        if now - before > self.timeout_s:
            self._heard = dict.fromkeys(self._heard, now)
        silent = {each for each, heard in self._heard.items() if now - heard > self.timeout_s}
        self._drop((silent | self.ended()) - {*self.lost, *self._done})

    def _drop(self, names: set[str]) -> None:
        """Leave these trainers out for good."""
        for name in sorted(names):
            self._heard.pop(name, None)
            self.lost.append(name)
            self.dropped(name)
            self._turn.notify_all()

    def dropped(self, name: str) -> None:
        """React to a trainer that was left out or has departed; does nothing by default."""

    def wait(self, done: Callable[[], bool], look: Callable[[], object]) -> None:
        """Wait until `done`, at most a fraction HOLD of the timeout, and call `look` regularly."""
        until = time.monotonic() + HOLD * self.timeout_s
        look()
        while not done() and time.monotonic() < until:
            self._turn.wait(min(0.1, HOLD * self.timeout_s))
            look()


class Members(HeardTrainers):
    """The trainers of a job that keep step.

    wanted: number of trainers that must gather before the job begins, including those left out. step: number of
    committed steps. can_share: whether this many trainers can share a step evenly; surplus trainers wait until they are
    needed.

    Nobody is waited for longer than LONG times the timeout: a trainer that has not come or pushed by then is left out.
    """

    def __init__(
        self, wanted: int, timeout_s: float, *, step: int = 0, can_share: Callable[[int], bool] = lambda _: True
    ) -> None:
        super().__init__(timeout_s)
        self.wanted, self.step, self.generation, self._can_share = wanted, step, 0, can_share
        self.ranks: dict[str, int] = {}  # ranks of the trainers of this generation, by name
        self._here, self._arrived = dict[str, None](), set[str]()
        self._regroup, self._lacks, self._over = True, False, False
        self._gathering: float | None = None  # time at which trainers began to gather
        self._arriving = 0.0  # time at which the first trainer had pushed the step

    def gather(self, name: str) -> dict[str, Any] | None:
        """A trainer's place in the new generation, once all trainers have gathered; None: ask again."""
        with self._turn:
            self.hear(name)
            if self._over:
                return {"over": self.step, "lost": self.lost}
            self._here[name] = None
            self._gathering = self._gathering or time.monotonic()
            if name not in self.ranks and self._most(len({*self.ranks, *self._here})) > len(self.ranks):
                self._regroup = True
            self._turn.notify_all()
            self.wait(lambda: self._over or name in self._placed(), self._all_here)
            return self._place(name) if name in self._placed() else None

    def commit(self, name: str, generation: int, step: int) -> bool | None:
        """True once all trainers have pushed the step after `step`; None: ask again.

        Raises:
            Regroup: the trainers have changed, and the step is void.
        """
        with self._turn:
            self.hear(name)
            if step >= self.step:
                if generation == self.generation and not self._regroup:
                    self._arriving = self._arriving if self._arrived else time.monotonic()
                    self._arrived.add(name)
                    if self._arrived >= self.ranks.keys():
                        self.step, self._arrived = self.step + 1, set()
                        self._turn.notify_all()
                    self.wait(lambda: self.step > step or self._regroup, self._drop_late)
                if step >= self.step and (self._regroup or generation != self.generation):
                    raise Regroup("the trainers of this job have changed")
            return True if self.step > step else None

    def changed(self, name: str, generation: int) -> bool | None:
        """True once the trainers of a generation have changed; None: ask again."""
        with self._turn:
            self.hear(name)
            self.wait(lambda: self._regroup or generation != self.generation, self.drop_silent)
            return True if self._regroup or generation != self.generation else None

    def leave(self, name: str) -> None:
        """Note that a trainer is done, and the job with it: nobody waits for it any more."""
        with self._turn:
            self._gone(name)
            self.ranks.pop(name, None)
            self._over = True
            self._turn.notify_all()

    def training(self) -> int:
        """Number of trainers that share a step."""
        return len(self.ranks)

    def lacks_one(self, generation: int) -> bool:
        """Whether a trainer was left out since this generation began."""
        return self._lacks and generation == self.generation

    def dropped(self, name: str) -> None:
        """Have the other trainers gather, if this one had a rank."""
        self._here.pop(name, None)
        if self.ranks.pop(name, None) is not None:
            self._regroup = self._lacks = True

    def _drop_late(self) -> None:
        """Leave out silent trainers, and those for whose push others have waited LONG times the timeout."""
        self.drop_silent()
        if self._arrived and time.monotonic() - self._arriving > LONG * self.timeout_s:
            self._drop(self.ranks.keys() - self._arrived)

    def _placed(self) -> dict[str, int]:
        return {} if self._regroup else self.ranks

    def _place(self, name: str) -> dict[str, Any]:
        self._here.pop(name, None)
        return {
            "rank": self.ranks[name], "world": len(self.ranks), "generation": self.generation, "step": self.step,
            **self.changes(), "waiting": len(self._here),
        }  # fmt: skip

    def _most(self, count: int) -> int:
        """The largest number of trainers, up to `count`, that can share a step."""
        return next((each for each in range(count, 0, -1) if self._can_share(each)), 0)

    def _all_here(self) -> None:
        """Form a new generation of the gathered trainers, once every living trainer has gathered."""
        self.drop_silent()
        late = self._gathering is not None and time.monotonic() - self._gathering > LONG * self.timeout_s
        if self._regroup and late:
            self._drop(self.ranks.keys() - self._here.keys())
        enough = len(self._here) >= (1 if self.generation or late else max(1, self.wanted - len(self.lost)))
        if not self._regroup or not enough or self.ranks.keys() - self._here.keys():
            return
        self._gathering = None
        ordered = sorted(self._here, key=lambda name: self.ranks.get(name, math.inf))  # newcomers are last
        self.ranks = {name: rank for rank, name in enumerate(ordered[: self._most(len(ordered))])}
        self._here = dict.fromkeys(ordered[len(self.ranks) :])
        self._note_joined(self.ranks)
        self.generation += 1
        self._arrived, self._regroup, self._lacks = set(), False, False
        self._turn.notify_all()
