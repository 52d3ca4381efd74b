"""Searches: one at a time per client, a bounded number waiting, each in a process with a time limit.

The events of a search are kept, so that every listener, also a late or returning one, receives all of them in order.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from recsmith.files import Given, Raw, decode
from recsmith.web.serving.answers import Ending, EventKind, Fix, PlanSummary, SearchEvent, SearchState
from recsmith.web.serving.settings import Refused, Settings

ENDINGS: tuple[EventKind, ...] = ("done", "failed", "cancelled")
KEPT_SEARCHES = 64  # ended searches of all clients, kept for those who still listen
LOOK_S = 1.0  # seconds between two checks whether a search's client is still there
SILENCE_S = 15.0  # seconds without an event after which listeners are sent a sign of life
DIED = "the process of the search has died; the machine may lack memory"
Keep = Callable[[Raw], Awaitable[PlanSummary]]  # keeps the plan of a `done` event
LARGEST_LINE = 2**28  # bytes of one event; the plan of the largest problem that the page takes is far smaller
ARGUMENTS = (
    "-P",
    "-m",
    "recsmith.web.serving.search_process",
)  # -P: modules of the current folder are not imported by mistake


class SearchProcess:
    """A process that waits for a problem, solves it, and ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls) -> "SearchProcess":
        """Start a process; it imports what searches need before anybody waits for it."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, *ARGUMENTS, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True, limit=LARGEST_LINE,
        )  # fmt: skip
        return cls(process)

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self.process.returncode is None

    async def search(self, problem: Raw) -> AsyncIterator[Raw]:
        """Send the process a problem, and yield its events until it ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(ConnectionError):  # it was ended meanwhile
            self.process.stdin.write(json.dumps(problem).encode() + b"\n")
            await self.process.stdin.drain()
        while line := await self.process.stdout.readline():
            yield json.loads(line)

    def interrupt(self) -> None:
        """Ask the process to end with the best plan so far."""
        self._signal(signal.SIGINT)

    async def end(self) -> None:
        """Kill the process and all that it has started."""
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.lives:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass
class SearchJob:
    """A search with its events so far.

    owner: key of the session.
    problem: what its process receives.
    stays: whether it continues without its client.
    listeners: how many clients are receiving its events. heard: when its client last asked for it, by time.monotonic.
    """

    id: str
    owner: str
    name: str
    problem: Raw
    keep: Keep
    stays: bool = False
    listeners: int = 0
    heard: float = field(default_factory=time.monotonic)
    events: list[SearchEvent] = field(default_factory=list[SearchEvent])
    news: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = 0.0
    process: SearchProcess | None = None

    def tell(self, kind: EventKind, **facts: Any) -> None:
        """Add an event, and wake the listeners."""
        self.events.append(SearchEvent(seq=len(self.events), kind=kind, **facts))
        self.news.set()
        self.news = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether its last event is an ending."""
        return bool(self.events) and self.events[-1].kind in ENDINGS

    @property
    def state(self) -> SearchState:
        """The present state of the search."""
        last = self.events[-1]
        plan = last.plan.id if last.plan else None
        return SearchState(id=self.id, state=last.kind, name=self.name, plan=plan, error=last.error)

    async def listen(self, after: int) -> AsyncIterator[SearchEvent | None]:
        """Events after number `after`, past and coming, up to the ending; None after SILENCE_S seconds without one."""
        self.listeners += 1
        try:
            while True:
                news = self.news
                for event in self.events[after + 1 :]:
                    after = event.seq
                    yield event
                if self.has_ended:
                    return
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await news.wait()
                except TimeoutError:
                    yield None
        finally:
            self.listeners -= 1
            self.heard = time.monotonic()

    def is_left(self, absent_s: float) -> bool:
        """Whether nobody has listened to the search, or asked for it, for `absent_s` seconds; False if it stays."""
        return not (self.stays or self.listeners or time.monotonic() - self.heard < absent_s)


class Searches:
    """All searches of the server, and the process that waits for the next one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.searches: dict[str, SearchJob] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.turns = asyncio.Semaphore(settings.searches)
        self.spare: SearchProcess | None = None
        self.asking: set[str] = set()

    async def warm_up(self) -> None:
        """Start a process ahead of the first search."""
        if self.spare is None or not self.spare.lives:
            self.spare = await SearchProcess.start()

    def start(self, owner: str, name: str, problem: Raw, keep: Keep, *, stays: bool = False) -> SearchJob:
        """Start a search; Refused if the client has one that runs (409), or too many wait (429)."""
        running = self._check_turn(owner)
        search = SearchJob(f"search-{secrets.token_hex(8)}", owner, name, problem, keep, stays)
        self._forget_old()
        self.searches[search.id] = search
        search.tell("queued", waiting=running)
        self.tasks[search.id] = asyncio.create_task(self._run(search))
        return search

    def _check_turn(self, owner: str) -> int:
        """Number of searches that run or wait; Refused if the client has one of them, or too many wait."""
        owners = [search.owner for search in self.searches.values() if not search.has_ended] + [*self.asking]
        if owner in self.asking:
            raise Refused(409, "what pays is being worked out for you, which may take minutes; ask again after that")
        if owner in owners:
            raise Refused(409, "a search of yours is running; wait for it, or cancel it")
        if len(owners) >= self.settings.searches + self.settings.waiting:
            raise Refused(429, f"{len(owners)} searches are waiting already; try again in a minute")
        return len(owners)

    async def ask(self, owner: str, question: Raw) -> Raw:
        """A process's single answer to a question, queued among the searches; Refused as in `start`, or if it fails."""
        self._check_turn(owner)
        self.asking.add(owner)
        try:
            async with self.turns, self._spare_process() as process:
                answer = await self._answer(process, question)
        finally:
            self.asking.discard(owner)
        if "error" in answer:
            raise Refused(400, answer["error"])
        return answer

    async def _answer(self, process: SearchProcess, question: Raw) -> Raw:
        limit_s = self.settings.longest_search_s
        try:
            async with asyncio.timeout(limit_s):
                async for answer in process.search(question):
                    return answer
        except TimeoutError:
            return {"error": f"no answer was found in {limit_s:g} s; ask on the command line, which has no limit"}
        return {"error": DIED}

    @contextlib.asynccontextmanager
    async def _spare_process(self) -> AsyncGenerator[SearchProcess]:
        """The waiting process, for one use; afterwards it is ended and another one is started."""
        await self.warm_up()
        process, self.spare = self.spare, None
        assert process is not None
        try:
            yield process
        finally:
            await process.end()
        await self.warm_up()

    def find(self, key: str, owner: str) -> SearchJob:
        """The client's search of an id; Refused (404) if it has none."""
        search = self.searches.get(key)
        if search is None or search.owner != owner:
            raise Refused(404, f"no search '{key[:60]}' is known here; it ended some time ago")
        search.heard = time.monotonic()
        return search

    def of(self, owner: str) -> list[SearchJob]:
        """The client's searches, the oldest first."""
        found = [search for search in self.searches.values() if search.owner == owner]
        for search in found:
            search.heard = time.monotonic()
        return found

    async def cancel(self, search: SearchJob) -> None:
        """End a search and its process, without a plan."""
        task = self.tasks.get(search.id)
        if task is not None and not search.has_ended:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def stop(self, search: SearchJob) -> None:
        """Ask a search to end with its best plan so far."""
        if search.process is not None:
            search.process.interrupt()

    async def close(self) -> None:
        """Cancel all searches and end the waiting process."""
        for search in list(self.searches.values()):
            await self.cancel(search)
        if self.spare is not None:
            await self.spare.end()

    async def _run(self, search: SearchJob) -> None:
        watching = asyncio.create_task(self._end_where_left(search, asyncio.current_task()))
        try:
            async with self.turns:
                await self._search(search)
        except asyncio.CancelledError:
            self._end(search, "cancelled")
        except Exception:
            self._end(search, "failed", error="the search ended in a way that it should not; the terminal says more")
            raise
        finally:
            watching.cancel()
            search.problem = {}
            self.tasks.pop(search.id, None)

    async def _end_where_left(self, search: SearchJob, task: "asyncio.Task[None] | None") -> None:
        while not search.is_left(self.settings.absent_s):
            await asyncio.sleep(min(LOOK_S, self.settings.absent_s))
        if task is not None:
            task.cancel()

    async def _search(self, search: SearchJob) -> None:
        async with self._spare_process() as process:
            search.process, search.started = process, time.monotonic()
            search.tell("started")
            await self._hear_all(search, process)

    async def _hear_all(self, search: SearchJob, process: SearchProcess) -> None:
        longest_s = search.problem["time_limit_s"] or self.settings.longest_search_s
        limit_s = longest_s + self.settings.grace_s
        late = asyncio.get_running_loop().call_later(longest_s, process.interrupt)  # it then ends with its best plan
        try:
            async with asyncio.timeout(limit_s):
                async for event in process.search(search.problem):
                    await self._hear(search, event)
        except TimeoutError:
            self._end(search, "failed", error=f"the search took more than {limit_s:g} s and was ended; ask for less")
        finally:
            late.cancel()
            search.process = None
        if not search.has_ended:
            self._end(search, "failed", error=DIED)

    async def _hear(self, search: SearchJob, event: Raw) -> None:
        if event["kind"] == "done":
            self._end(search, "done", plan=await search.keep(event))
        elif event["kind"] == "failed":
            fixes = tuple(decode(Fix, each, Given.of("a fix", "")) for each in event.get("fixes", ()))
            self._end(search, "failed", error=event["error"], fixes=fixes)
        else:
            search.tell(event.pop("kind"), **event)

    def _end(self, search: SearchJob, kind: Ending, **facts: Any) -> None:
        if not search.has_ended:
            elapsed_s = time.monotonic() - search.started if search.started else 0.0
            total_s = facts["plan"].total_s if "plan" in facts else None
            search.tell(kind, elapsed_s=elapsed_s, total_s=total_s, **facts)

    def _forget_old(self) -> None:
        ended = [key for key, search in self.searches.items() if search.has_ended]
        for key in ended[: max(0, len(ended) - KEPT_SEARCHES)]:
            del self.searches[key]
