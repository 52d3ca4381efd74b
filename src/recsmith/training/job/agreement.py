"""What all ranks agree on: a wish of any rank is heard by all at the same step; whether a file was written.

Now and then each rank tells what it knows, and hears the next time what any of them told, so that nobody waits.
"""

import os
import signal
import threading
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from recsmith.errors import RecSmithError
from recsmith.jobs.processes import TOGETHER_S
from recsmith.plans import Plan

What = Literal["save", "stop", "fail", "diverged", "evaluate", "replan", "refresh", "roll_back"]
END = "end"  # a signal asked this process to end
TOLD = (END, *get_args(What))


class Diverged(RecSmithError):
    """A loss is not finite, which ends training; other models of an array train on."""


FAILURES = {"diverged": Diverged, "fail": RecSmithError}  # wishes that end training with an error


@dataclass(frozen=True)
class Wish:
    """What a watcher asks for, and why. plan: of replan, one that is ready; None: one is made from the data."""

    what: What
    because: str
    plan: Plan | None = None


class Agreement:
    """Small messages on a group of their own, on the processors, so that they never wait for a GPU."""

    def __init__(self) -> None:
        self.group: Any = dist.new_group(backend="gloo")
        self._flags = torch.zeros(len(TOLD))
        self._work: dist.Work | None = None

    def tell(self, wishes: Collection[str]) -> None:
        """Send what this rank wishes: of TOLD."""
        self._flags = torch.tensor([float(each in wishes) for each in TOLD])
        self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self.group, async_op=True)

    def heard(self) -> set[str]:
        """What any rank wishes, as told last; nothing where nothing was told since."""
        if self._work is None:
            return set()
        self._work.wait()
        self._work = None
        return {each for each, flag in zip(TOLD, self._flags.tolist(), strict=True) if flag}

    def everywhere(self, well: bool) -> bool:
        """Whether it went well on every rank; all of them ask."""
        flag = torch.tensor(float(well))
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.group)
        return bool(flag)

    def reasons(self, mine: Mapping[str, str]) -> dict[str, str]:
        """Why each wish that was heard is wished: what the first rank says that has it; all of them ask."""
        found: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(found, dict(mine), group=self.group)
        return {each: reason for said in reversed(found) for each, reason in said.items()}


HEEDED = list["Ending"]()  # of this process, while SIGTERM is noted and not obeyed


def asked_to_end() -> bool:
    """Whether a signal asked this process to end: for steps that take long, which look at it between batches."""
    return any(each.asked for each in HEEDED)


class Ending:
    """Whether this process was asked to end (SIGTERM)."""

    def __init__(self) -> None:
        self.asked, self.since = False, 0.0

    def ask(self, *_: object) -> None:
        """The handler of the signal."""
        self.since = self.since if self.asked else time.monotonic()
        self.asked = True


@contextmanager
def heeding_sigterm() -> Generator[Ending]:
    """SIGTERM is noted within, not obeyed at once; a second one ends the process, unless both come together.

    One that comes within a training that is part of another one is noted for both, so that no other part begins. In a
    thread beside the main one, where Python sets no handlers, signals do what they did.
    """
    ending = Ending()
    if asked_to_end():
        ending.ask()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return

    def ask(*_: object) -> None:
        if ending.asked and time.monotonic() - ending.since > TOGETHER_S:
            signal.signal(signal.SIGTERM, before)
            os.kill(os.getpid(), signal.SIGTERM)
        for each in HEEDED:
            each.ask()

    before = signal.signal(signal.SIGTERM, ask)
    HEEDED.append(ending)
    try:
        yield ending
    finally:
        HEEDED.remove(ending)
        signal.signal(signal.SIGTERM, before)
