"""Searches as jobs: one at a time for each client, a bounded number that wait, each in a process with a limit of time.

A job's events are kept, so that whoever listens, again or for the first time, hears all of them in order.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from recsmith.files import Raw
from recsmith.web.serving.messages import Ending, EventKind, PlanSummary, SearchEvent, SearchState
from recsmith.web.serving.refusals import Refused
from recsmith.web.serving.search_child import SearchChild
from recsmith.web.serving.settings import Settings

ENDINGS: tuple[EventKind, ...] = ("done", "failed", "cancelled")
KEPT_JOBS = 64  # that have ended, of all clients, for those who still listen
SILENCE_S = 15.0  # seconds without an event, after which listeners hear that the search lives

Keep = Callable[[Raw], Awaitable[PlanSummary]]  # keeps the plan of a `done` event


@dataclass
class Job:
    """A search with its events so far. owner: key of the session. problem: what its process is told."""

    id: str
    owner: str
    name: str
    problem: Raw
    keep: Keep
    events: list[SearchEvent] = field(default_factory=list[SearchEvent])
    news: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = 0.0
    child: SearchChild | None = None

    def tell(self, kind: EventKind, **facts: Any) -> None:
        """Add an event, and wake who listens."""
        self.events.append(SearchEvent(seq=len(self.events), kind=kind, **facts))
        self.news.set()
        self.news = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether its last event is an ending."""
        return bool(self.events) and self.events[-1].kind in ENDINGS

    @property
    def state(self) -> SearchState:
        """Where it is."""
        last = self.events[-1]
        plan = last.plan.id if last.plan else None
        return SearchState(id=self.id, state=last.kind, name=self.name, plan=plan, error=last.error)

    async def listen(self, after: int) -> AsyncIterator[SearchEvent | None]:
        """Its events behind a number, past and coming, up to the ending; None where nothing happens for a while."""
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


class Searches:
    """All jobs of the server, and the process that waits for the next one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.jobs: dict[str, Job] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.turns = asyncio.Semaphore(settings.searches)
        self.spare: SearchChild | None = None

    async def warm_up(self) -> None:
        """Start a process ahead of the first search."""
        if self.spare is None or not self.spare.lives:
            self.spare = await SearchChild.start()

    def start(self, owner: str, name: str, problem: Raw, keep: Keep) -> Job:
        """A new job; Refused where the client has one that runs (409), or too many wait (429)."""
        running = [job for job in self.jobs.values() if not job.has_ended]
        if any(job.owner == owner for job in running):
            raise Refused(409, "a search of yours is running; wait for it, or cancel it")
        if len(running) >= self.settings.searches + self.settings.waiting:
            raise Refused(429, f"{len(running)} searches are waiting already; try again in a minute")
        job = Job(f"search-{secrets.token_hex(8)}", owner, name, problem, keep)
        self._forget_old()
        self.jobs[job.id] = job
        job.tell("queued", waiting=len(running))
        self.tasks[job.id] = asyncio.create_task(self._run(job))
        return job

    def find(self, key: str, owner: str) -> Job:
        """The client's job of an id; Refused (404) where it has none."""
        job = self.jobs.get(key)
        if job is None or job.owner != owner:
            raise Refused(404, f"no search '{key[:60]}' is known here; it ended some time ago")
        return job

    def of(self, owner: str) -> list[Job]:
        """The client's jobs, the oldest first."""
        return [job for job in self.jobs.values() if job.owner == owner]

    async def cancel(self, job: Job) -> None:
        """End a job and its process, without a plan."""
        task = self.tasks.get(job.id)
        if task is not None and not job.has_ended:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def stop(self, job: Job) -> None:
        """Have a job end with its best plan so far."""
        if job.child is not None:
            job.child.interrupt()

    async def close(self) -> None:
        """End everything."""
        for job in list(self.jobs.values()):
            await self.cancel(job)
        if self.spare is not None:
            await self.spare.end()

    async def _run(self, job: Job) -> None:
        try:
            async with self.turns:
                await self._search(job)
        except asyncio.CancelledError:
            self._end(job, "cancelled")
        except Exception:
            self._end(job, "failed", error="the search ended in a way that it should not; the terminal says more")
            raise
        finally:
            job.problem = {}
            self.tasks.pop(job.id, None)

    async def _search(self, job: Job) -> None:
        await self.warm_up()
        child, self.spare = self.spare, None
        assert child is not None
        job.child, job.started = child, time.monotonic()
        job.tell("started")
        limit_s = job.problem["time_limit_s"] + self.settings.grace_s
        try:
            async with asyncio.timeout(limit_s):
                async for event in child.search(job.problem):
                    await self._hear(job, event)
        except TimeoutError:
            self._end(job, "failed", error=f"the search took more than {limit_s:g} s and was ended; ask for less")
        finally:
            job.child = None
            await child.end()
        if not job.has_ended:
            self._end(job, "failed", error="the process of the search has died; the machine may lack memory")
        await self.warm_up()

    async def _hear(self, job: Job, event: Raw) -> None:
        if event["kind"] == "done":
            self._end(job, "done", plan=await job.keep(event))
        elif event["kind"] == "failed":
            self._end(job, "failed", error=event["error"])
        else:
            job.tell(event.pop("kind"), **event)

    def _end(self, job: Job, kind: Ending, **facts: Any) -> None:
        if not job.has_ended:
            elapsed_s = time.monotonic() - job.started if job.started else 0.0
            total_s = facts["plan"].total_s if "plan" in facts else None
            job.tell(kind, elapsed_s=elapsed_s, total_s=total_s, **facts)

    def _forget_old(self) -> None:
        ended = [key for key, job in self.jobs.items() if job.has_ended]
        for key in ended[: max(0, len(ended) - KEPT_JOBS)]:
            del self.jobs[key]
