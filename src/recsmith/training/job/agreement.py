"""What all ranks agree on: wishes of any rank, received by all at the same step; whether a file was written everywhere.

At intervals each rank sends its wishes, and receives at the next interval what any rank sent, so that nobody waits.
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
END = "end"  # wish of a process that a signal asked to end
TOLD = (END, *get_args(What))


class Diverged(RecSmithError):
    """A loss is not finite, which ends training; other models of an array continue."""


FAILURES = {"diverged": Diverged, "fail": RecSmithError}  # wishes that end training, with their errors


@dataclass(frozen=True)
class Wish:
    """The action that a watcher requests, and why. plan: for replan, a ready plan; None: one is made from the data."""

    what: What
    because: str
    plan: Plan | None = None


class Agreement:
    """Small messages on a separate CPU process group, so that they never wait for a GPU."""

    def __init__(self) -> None:
        self.group: Any = dist.new_group(backend="gloo")
        self._flags = torch.zeros(len(TOLD))
        self._work: dist.Work | None = None

    def tell(self, wishes: Collection[str]) -> None:
        """Send this rank's wishes, which are among TOLD."""
        self._flags = torch.tensor([float(each in wishes) for each in TOLD])
        self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self.group, async_op=True)

    def heard(self) -> set[str]:
        """The wishes of any rank that were sent last; empty if nothing was sent since the last call."""
        if self._work is None:
            return set()
        self._work.wait()
        self._work = None
        return {each for each, flag in zip(TOLD, self._flags.tolist(), strict=True) if flag}

    def everywhere(self, well: bool) -> bool:
        """Whether something went well on every rank; every rank must call it."""
        flag = torch.tensor(float(well))
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.group)
        return bool(flag)

    def reasons(self, mine: Mapping[str, str]) -> dict[str, str]:
        """The reason of each received wish, from the first rank that has it; every rank must call it."""
        found: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(found, dict(mine), group=self.group)
        return {each: reason for said in reversed(found) for each, reason in said.items()}


HEEDED = list["Ending"]()  # objects that note SIGTERM in this process


def asked_to_end() -> bool:
    """Whether a signal asked this process to end: checked between batches by steps that take long."""
    return any(each.asked for each in HEEDED)


class Ending:
    """Records whether this process was asked to end (SIGTERM)."""

    def __init__(self) -> None:
        self.asked, self.since = False, 0.0

    def ask(self, *_: object) -> None:
        """Handler of the signal."""
        self.since = self.since if self.asked else time.monotonic()
        self.asked = True


@contextmanager
def heeding_sigterm() -> Generator[Ending]:
    """Within this context, SIGTERM is recorded instead of ending the process; a second, later SIGTERM ends it.

    If one training runs inside another, a signal is recorded for both, so that the outer one starts no other part. In a
    thread other than the main thread, where Python sets no handlers, signals are handled as before.
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
