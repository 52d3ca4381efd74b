"""A plan with its card (name, note, origin), and the protocol of stores of plans.

folder.py keeps plans in files, sessions.py in memory. Both implement the protocol, so that no other module needs to
know which of the two it calls.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.web.serving.answers import DeletedPlan, PlanSummary, UnreadFile
from recsmith.web.serving.edits import DraftChange, HandDraft
from recsmith.web.serving.settings import Refused

LONGEST_NAME = 200  # characters of a plan's name
LONGEST_NOTE = 10_000  # characters: a page of text
LONGEST_SLUG = 80  # characters of a file's name: file systems take 255 bytes, including endings of temporary files
_ENDING = re.compile(r"\.(json|ya?ml)$", re.IGNORECASE)


@noun
class PlanCard:
    """What is known about a plan in addition to its file.

    name, note: the name and the note that people gave it. origin: where it comes from, in words. parent: id of the plan
    that it was made from. question: the request of its search. when: it was made, in UTC, such as
    2026-11-28T18:20:01.250Z. elapsed_s, iterations, truncated, notes: how its search went.
    """

    name: str
    note: str = ""
    origin: str = ""
    parent: str | None = None
    question: Raw | None = None
    when: str
    elapsed_s: float | None = None
    iterations: int | None = None
    truncated: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_rules(
            None if self.name.strip() else "the name of a plan is empty; give it one",
            _too_long("name", self.name, LONGEST_NAME),
            _too_long("note", self.note, LONGEST_NOTE),
            None if _seconds(self.when) is not None
            else f"when is '{self.when[:40]}'; write a moment such as 2026-11-28T18:20:01.250Z",
        )  # fmt: skip

    @property
    def made(self) -> float:
        """When the plan was made, in seconds since 1970."""
        return _seconds(self.when) or 0.0


@dataclass(frozen=True)
class KeptPlan:
    """A plan and its card. unwritten: why it is not yet written to its folder; empty if it is."""

    plan: Plan
    card: PlanCard
    unwritten: str = ""

    @property
    def name(self) -> str:
        """The name that people gave the plan."""
        return self.card.name


@dataclass(frozen=True)
class Listing:
    """Summaries of all plans of a store, the oldest first; deleted plans; files that cannot be read."""

    plans: tuple[PlanSummary, ...]
    deleted: tuple[DeletedPlan, ...] = ()
    unread: tuple[UnreadFile, ...] = ()


class KeptPlans(Protocol):
    """A store of plans by their ids. Calls may wait for a disk."""

    def put(self, kept: KeptPlan) -> str:
        """Keep a plan under a new id."""
        ...

    def get(self, key: str) -> KeptPlan:
        """The plan of an id; Refused (404) if there is none."""
        ...

    def listing(self) -> Listing:
        """Summaries of all plans."""
        ...

    def unwritten(self) -> tuple[KeptPlan, ...]:
        """Plans that are lost when the server ends, because their folder still cannot take them."""
        ...

    def change(self, key: str, name: str | None, note: str | None) -> None:
        """Change a plan's name, note, or both."""
        ...

    def drop(self, key: str) -> None:
        """Delete a plan; `restore` undoes it."""
        ...

    def restore(self, key: str) -> str:
        """Undo a deletion; returns the plan's id, which may be a new one."""
        ...

    def draft(self, key: str) -> HandDraft:
        """The draft of a plan; an empty one if there is none."""
        ...

    def keep_draft(self, key: str, change: DraftChange) -> HandDraft:
        """Replace the draft that was changed; Refused (409) if it is no longer the stored one."""
        ...


def now() -> str:
    """The present time, in the format of cards."""
    return moment(datetime.now(UTC).timestamp())


def moment(seconds: float) -> str:
    """Seconds since 1970 in the format of cards."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def slug(name: str, other: str = "plan") -> str:
    """A name for use in file names and addresses: only letters, digits, '_' and '-'."""
    plain = unicodedata.normalize("NFKD", _ENDING.sub("", name)).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain)[:LONGEST_SLUG].strip("-") or other


def no_plan(key: str) -> Refused:
    """The error for an id that no plan has."""
    return Refused(404, f"no plan '{key[:60]}' is kept here; it was deleted or moved away")


def check_base(found: HandDraft, change: DraftChange) -> None:
    """Raise Refused (409) for a draft that was made from another one than is stored now."""
    if found.version != change.base:
        raise Refused(
            409,
            "this plan was changed by hand in another window meanwhile, and nothing was overwritten; load the page "
            "again to go on from there, or keep what you see here as a new plan",
        )


def _too_long(what: str, text: str, most: int) -> str | None:
    return f"the {what} of a plan has {len(text):,} characters; at most {most:,} are kept" if len(text) > most else None


def _seconds(when: str) -> float | None:
    try:
        found = datetime.fromisoformat(when)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo else None
