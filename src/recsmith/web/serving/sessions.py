"""What each client keeps on the server, in memory and for a limited time: files that it opened.

Its plans are those of the server's folder; without a folder, each client's plans are kept in memory, too.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from recsmith.clusters import Cluster
from recsmith.reports.sweep_files import WrittenSweep
from recsmith.training.results.arms import OnlineResult
from recsmith.web.serving.answers import DeletedPlan, PlanSummary
from recsmith.web.serving.edits import DraftChange, HandDraft, next_draft
from recsmith.web.serving.kept_plans import KeptPlan, KeptPlans, Listing, check_base
from recsmith.web.serving.settings import Refused, Settings
from recsmith.web.serving.uploads import RunningText
from recsmith.workloads import Workload

PROGRAMS = "programs"  # the session shared by programs that send the token itself

Kept = TypeVar("Kept")


class Shelf(Generic[Kept]):
    """The latest objects of one kind by their ids, which begin with the kind: `plan-3f09c2...`."""

    def __init__(self, kind: str, most: int) -> None:
        self.kind, self.most = kind, most
        self.things: OrderedDict[str, Kept] = OrderedDict()

    def put(self, thing: Kept) -> str:
        """Keep an object under a new id; the oldest is dropped if there are too many."""
        key = f"{self.kind}-{secrets.token_hex(8)}"
        self.keep(key, thing)
        return key

    def keep(self, key: str, thing: Kept) -> None:
        """Keep an object under a given id."""
        self.things[key] = thing
        while len(self.things) > self.most:
            self.things.popitem(last=False)

    def get(self, key: str) -> Kept:
        """The object of an id; Refused (404) if there is none."""
        if key not in self.things:
            raise Refused(404, f"no {self.kind} '{key[:60]}' is kept here; it was deleted, or has made room for others")
        return self.things[key]

    def drop(self, key: str) -> None:
        """Forget an object; Refused (404) if there is none."""
        self.get(key)
        del self.things[key]


class PlanShelf:
    """The latest plans of one client, in memory only; they are lost when the server ends."""

    def __init__(self, most: int, summary: Callable[[str, KeptPlan], PlanSummary]) -> None:
        self.shelf = Shelf[KeptPlan]("plan", most)
        self.gone = Shelf[KeptPlan]("plan", most)
        self.drafts: dict[str, HandDraft] = {}
        self.summary = summary

    def put(self, kept: KeptPlan) -> str:
        """Keep a plan under a new id."""
        return self.shelf.put(kept)

    def get(self, key: str) -> KeptPlan:
        """The plan of an id; Refused (404) if there is none."""
        return self.shelf.get(key)

    def listing(self) -> Listing:
        """Summaries of all plans, and names of deleted ones."""
        return Listing(
            plans=tuple(self.summary(*each) for each in self.shelf.things.items()),
            deleted=tuple(DeletedPlan(id=key, name=kept.name) for key, kept in self.gone.things.items()),
        )

    def unwritten(self) -> tuple[KeptPlan, ...]:
        """Always empty: it was announced that all plans are lost when the server ends."""
        return ()

    def change(self, key: str, name: str | None, note: str | None) -> None:
        """Change a plan's name or note."""
        kept = self.get(key)
        given = {word: value for word, value in (("name", name), ("note", note)) if value is not None}
        self.shelf.keep(key, replace(kept, card=replace(kept.card, **given)))

    def drop(self, key: str) -> None:
        """Delete a plan."""
        self.gone.keep(key, self.get(key))
        self.shelf.drop(key)

    def restore(self, key: str) -> str:
        """Undo a deletion."""
        self.shelf.keep(key, self.gone.get(key))
        self.gone.drop(key)
        return key

    def draft(self, key: str) -> HandDraft:
        """The draft of a plan; an empty one if there is none."""
        self.get(key)
        return self.drafts.get(key, HandDraft())

    def keep_draft(self, key: str, change: DraftChange) -> HandDraft:
        """Replace the draft that was changed; Refused (409) if it is no longer the stored one."""
        check_base(self.draft(key), change)
        there = self.shelf.things.keys() | self.gone.things.keys()  # a deleted plan is restored with its draft
        self.drafts = {each: draft for each, draft in self.drafts.items() if each in there}
        self.drafts[key] = next_draft(change, self.get(key).plan.digest)
        return self.drafts[key]


@dataclass(frozen=True)
class KeptStream:
    """Ways to train on a stream, as compared by a replay, and the name of its file."""

    name: str
    result: OnlineResult


@dataclass(frozen=True)
class KeptSweep:
    """A sweep over numbers of devices, and the name of its file."""

    name: str
    sweep: WrittenSweep


@dataclass
class Session:
    """A client and its objects. used: last use, by time.monotonic. reads: whether it may change nothing."""

    key: str
    plans: KeptPlans
    workloads: Shelf[Workload]
    clusters: Shelf[Cluster]
    streams: Shelf[KeptStream]
    sweeps: Shelf[KeptSweep]
    running: Shelf[RunningText]
    reads: bool = False
    names: dict[str, str] = field(default_factory=dict[str, str])  # names of files, by the id of what they held
    assumed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # fields not stated
    used: float = field(default_factory=time.monotonic)

    @classmethod
    def new(cls, key: str, plans: KeptPlans, settings: Settings, *, reads: bool = False) -> "Session":
        """A session without files."""
        return cls(
            key, plans, Shelf("workload", settings.kept_files), Shelf("cluster", settings.kept_files),
            Shelf("stream", settings.kept_files), Shelf("sweep", settings.kept_files),
            Shelf("running", settings.kept_files), reads,
        )  # fmt: skip


class Sessions:
    """All sessions by their keys, which only the clients' cookies hold. plans: returns the store for a new session."""

    def __init__(self, settings: Settings, plans: Callable[[], KeptPlans]) -> None:
        self.settings, self.plans = settings, plans
        self.by_key: dict[str, Session] = {}
        self.prepare: Callable[[Session], None] = lambda _: None  # fills a new session with the first files

    def open(self, key: str | None = None, *, reads: bool = False) -> Session:
        """Open a new session; idle sessions are dropped, and the longest idle one if there are too many."""
        self._forget()
        session = Session.new(key or secrets.token_urlsafe(32), self.plans(), self.settings, reads=reads)
        self.prepare(session)
        self.by_key[session.key] = session
        return session

    def find(self, key: str) -> Session | None:
        """The session of a key, marked as used now; None if it is unknown or was forgotten."""
        session = self.by_key.get(key)
        if session is None or session.key.startswith(PROGRAMS) or self._is_idle(session):
            return None
        session.used = time.monotonic()
        return session

    def of_programs(self, *, reads: bool = False) -> Session:
        """The session shared by programs that send the token, or by those that send the token that only reads."""
        key = f"{PROGRAMS} that read" if reads else PROGRAMS
        session = self.by_key.get(key)
        if session is None or self._is_idle(session):
            return self.open(key, reads=reads)
        session.used = time.monotonic()
        return session

    def _is_idle(self, session: Session) -> bool:
        return time.monotonic() - session.used > self.settings.idle_s

    def _forget(self) -> None:
        idle = [key for key, session in self.by_key.items() if self._is_idle(session)]
        for key in idle:
            del self.by_key[key]
        while len(self.by_key) >= self.settings.sessions:
            del self.by_key[min(self.by_key.values(), key=lambda session: session.used).key]
