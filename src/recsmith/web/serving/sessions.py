"""What each client keeps on the server, in memory and for a limited time: files that it opened.

Its plans are those of the server's folder; without a folder they are in memory, too, each client's own.
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

PROGRAMS = "programs"  # the session of those who send the token itself

Kept = TypeVar("Kept")


class Shelf(Generic[Kept]):
    """The latest things of one kind by their ids, which say the kind: `plan-3f09c2...`."""

    def __init__(self, kind: str, most: int) -> None:
        self.kind, self.most = kind, most
        self.things: OrderedDict[str, Kept] = OrderedDict()

    def put(self, thing: Kept) -> str:
        """Keep a thing under a new id; the oldest leaves where there are too many."""
        key = f"{self.kind}-{secrets.token_hex(8)}"
        self.keep(key, thing)
        return key

    def keep(self, key: str, thing: Kept) -> None:
        """Keep a thing under an id of its own."""
        self.things[key] = thing
        while len(self.things) > self.most:
            self.things.popitem(last=False)

    def get(self, key: str) -> Kept:
        """The thing of an id; Refused (404) where there is none."""
        if key not in self.things:
            raise Refused(404, f"no {self.kind} '{key[:60]}' is kept here; it was deleted, or has made room for others")
        return self.things[key]

    def drop(self, key: str) -> None:
        """Forget a thing; Refused (404) where there is none."""
        self.get(key)
        del self.things[key]


class PlanShelf:
    """The latest plans of one client, in memory alone; they go with the server."""

    def __init__(self, most: int, summary: Callable[[str, KeptPlan], PlanSummary]) -> None:
        self.shelf = Shelf[KeptPlan]("plan", most)
        self.gone = Shelf[KeptPlan]("plan", most)
        self.drafts: dict[str, HandDraft] = {}
        self.summary = summary

    def put(self, kept: KeptPlan) -> str:
        """Keep a plan under a new id."""
        return self.shelf.put(kept)

    def get(self, key: str) -> KeptPlan:
        """The plan of an id; Refused (404) where there is none."""
        return self.shelf.get(key)

    def listing(self) -> Listing:
        """All plans in figures, and names of those that were deleted."""
        return Listing(
            plans=tuple(self.summary(*each) for each in self.shelf.things.items()),
            deleted=tuple(DeletedPlan(id=key, name=kept.name) for key, kept in self.gone.things.items()),
        )

    def unwritten(self) -> tuple[KeptPlan, ...]:
        """None: all plans of this client go with the server, as it was told."""
        return ()

    def change(self, key: str, name: str | None, note: str | None) -> None:
        """Give a plan another name, or note."""
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
        """The changes by hand that wait at a plan."""
        self.get(key)
        return self.drafts.get(key, HandDraft())

    def keep_draft(self, key: str, change: DraftChange) -> HandDraft:
        """Put a draft in the place of the one that was changed."""
        check_base(self.draft(key), change)
        self.drafts = {each: draft for each, draft in self.drafts.items() if each in self.shelf.things}
        self.drafts[key] = next_draft(change, self.get(key).plan.digest)
        return self.drafts[key]


@dataclass(frozen=True)
class KeptStream:
    """How a stream is best learned, and the name of its file."""

    name: str
    result: OnlineResult


@dataclass(frozen=True)
class KeptSweep:
    """A sweep over numbers of devices, and the name of its file."""

    name: str
    sweep: WrittenSweep


@dataclass
class Session:
    """A client and its things. used: seconds of a clock that never goes back. reads: it may change nothing."""

    key: str
    plans: KeptPlans
    workloads: Shelf[Workload]
    clusters: Shelf[Cluster]
    streams: Shelf[KeptStream]
    sweeps: Shelf[KeptSweep]
    running: Shelf[RunningText]
    reads: bool = False
    names: dict[str, str] = field(default_factory=dict[str, str])  # of files, by the id of what they held
    assumed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # of their tables, likewise
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
    """All sessions by their keys, which only the clients' cookies hold. plans: what keeps those of a new session."""

    def __init__(self, settings: Settings, plans: Callable[[], KeptPlans]) -> None:
        self.settings, self.plans = settings, plans
        self.by_key: dict[str, Session] = {}
        self.prepare: Callable[[Session], None] = lambda _: None  # puts into a new session what every one begins with

    def open(self, key: str | None = None, *, reads: bool = False) -> Session:
        """A new session; those that have been idle too long leave, and the idlest where there are too many."""
        self._forget()
        session = Session.new(key or secrets.token_urlsafe(32), self.plans(), self.settings, reads=reads)
        self.prepare(session)
        self.by_key[session.key] = session
        return session

    def find(self, key: str) -> Session | None:
        """The session of a key, used now; None where it is unknown or forgotten."""
        session = self.by_key.get(key)
        if session is None or session.key.startswith(PROGRAMS) or self._is_idle(session):
            return None
        session.used = time.monotonic()
        return session

    def of_programs(self, *, reads: bool = False) -> Session:
        """The session of all who send the token itself, or that of all who send the one that only reads."""
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
