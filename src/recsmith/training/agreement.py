"""What all ranks agree on: whether to stop, whether a loss is not finite, whether a file was written.

Now and then each rank tells what it knows, and hears the next time what any of them told, so that nobody waits.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


class Agreement:
    """Small messages on a group of their own, on the processors, so that they never wait for a GPU."""

    def __init__(self) -> None:
        self.group: Any = dist.new_group(backend="gloo")
        self._flags = torch.zeros(2)
        self._work: dist.Work | None = None

    def tell(self, *, stop: bool, broken: bool) -> None:
        """Send what this rank knows."""
        self._flags = torch.tensor([float(stop), float(broken)])
        self._work = dist.all_reduce(self._flags, dist.ReduceOp.MAX, group=self.group, async_op=True)

    def heard(self) -> tuple[bool, bool]:
        """(stop, broken) of any rank, as told last; nothing where nothing was told since."""
        if self._work is None:
            return False, False
        self._work.wait()
        self._work = None
        return bool(self._flags[0]), bool(self._flags[1])

    def everywhere(self, well: bool) -> bool:
        """Whether it went well on every rank; all of them ask."""
        flag = torch.tensor(float(well))
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self.group)
        return bool(flag)


class Ending:
    """Whether this process was asked to end (SIGTERM)."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, *_: object) -> None:
        """The handler of the signal."""
        self.asked = True


@contextmanager
def heeding_sigterm() -> Generator[Ending]:
    """SIGTERM is noted within, not obeyed at once; a second one ends the process."""
    ending = Ending()

    def ask(*_: object) -> None:
        ending.ask()
        signal.signal(signal.SIGTERM, before)

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)
