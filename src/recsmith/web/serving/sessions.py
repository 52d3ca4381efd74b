"""What each client keeps on the server, in memory alone and for a limited time: files that it opened, and plans."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from recsmith.clusters import Cluster
from recsmith.plans import Plan
from recsmith.training.results.arms import OnlineResult
from recsmith.web.serving.settings import Refused, Settings
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
        self.things[key] = thing
        while len(self.things) > self.most:
            self.things.popitem(last=False)
        return key

    def get(self, key: str) -> Kept:
        """The thing of an id; Refused (404) where there is none."""
        if key not in self.things:
            raise Refused(404, f"no {self.kind} '{key[:60]}' is kept here; it was deleted, or has made room for others")
        return self.things[key]

    def drop(self, key: str) -> None:
        """Forget a thing; Refused (404) where there is none."""
        self.get(key)
        del self.things[key]


@dataclass(frozen=True)
class KeptPlan:
    """A plan, where it comes from in words, and how its search went: seconds, tries, and whether it was cut short."""

    name: str
    origin: str
    plan: Plan
    made: float
    elapsed_s: float | None = None
    iterations: int | None = None
    truncated: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeptStream:
    """How a stream is best learned, and the name of its file."""

    name: str
    result: OnlineResult


@dataclass
class Session:
    """A client and its things. used: seconds of a clock that never goes back."""

    key: str
    workloads: Shelf[Workload]
    clusters: Shelf[Cluster]
    plans: Shelf[KeptPlan]
    streams: Shelf[KeptStream]
    names: dict[str, str] = field(default_factory=dict[str, str])  # of files, by the id of what they held
    used: float = field(default_factory=time.monotonic)

    @classmethod
    def new(cls, key: str, settings: Settings) -> "Session":
        """An empty session."""
        return cls(
            key, Shelf("workload", settings.kept_files), Shelf("cluster", settings.kept_files),
            Shelf("plan", settings.kept_plans), Shelf("stream", settings.kept_files),
        )  # fmt: skip


class Sessions:
    """All sessions by their keys, which only the clients' cookies hold."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.by_key: dict[str, Session] = {}
        self.prepare: Callable[[Session], None] = lambda _: None  # puts into a new session what every one begins with

    def open(self, key: str | None = None) -> Session:
        """A new session; those that have been idle too long leave, and the idlest where there are too many."""
        self._forget()
        session = Session.new(key or secrets.token_urlsafe(32), self.settings)
        self.prepare(session)
        self.by_key[session.key] = session
        return session

    def find(self, key: str) -> Session | None:
        """The session of a key, used now; None where it is unknown or forgotten."""
        session = self.by_key.get(key)
        if session is None or session.key == PROGRAMS or self._is_idle(session):
            return None
        session.used = time.monotonic()
        return session

    def of_programs(self) -> Session:
        """The session of all who send the token itself."""
        session = self.by_key.get(PROGRAMS)
        if session is None or self._is_idle(session):
            return self.open(PROGRAMS)
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
