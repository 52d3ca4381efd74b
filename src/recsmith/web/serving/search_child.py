"""A process that searches: started without a shell, in a group of its own, spoken to in lines of JSON."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

from recsmith.files import Raw

LARGEST_LINE = 2**28  # bytes of one event: the plan of the largest problem that the page takes is far below
WORDS = ("-P", "-m", "recsmith.web.serving.search_process")  # -P: no module of the current folder is taken for another


class SearchChild:
    """One process, which waits for a problem, solves it, and ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls) -> "SearchChild":
        """A new process; it imports what searches need while nobody waits for it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, *WORDS, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True, limit=LARGEST_LINE,
        )  # fmt: skip
        return cls(process)

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    async def search(self, problem: Raw) -> AsyncIterator[Raw]:
        """Give it a problem, and hear its events until it ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(ConnectionError):  # it has been ended meanwhile
            self.process.stdin.write(json.dumps(problem).encode() + b"\n")
            await self.process.stdin.drain()
        while line := await self.process.stdout.readline():
            yield json.loads(line)

    def interrupt(self) -> None:
        """Ask it to end with the best plan so far."""
        self._signal(signal.SIGINT)

    async def end(self) -> None:
        """End it and all that it has started."""
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.lives:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
