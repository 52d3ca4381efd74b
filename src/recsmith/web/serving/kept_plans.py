"""A plan that is kept, with what is known of it beside its file; and what keeps plans: a folder, or memory alone.

folder.py keeps them in files, sessions.py in memory. Both answer the same questions, so that nothing else knows which
of the two it asks.
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
LONGEST_SLUG = 80  # characters of a file's name: file systems take 255 bytes, endings of temporary files included
_ENDING = re.compile(r"\.(json|ya?ml)$", re.IGNORECASE)


@noun
class PlanCard:
    """What is known of a plan beside its file.

    name, note: what people call it and say of it. origin: where it comes from, in words. parent: id of the plan that
    it was made from. question: what the search was asked for. when: it was made, in UTC, such as
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
        """Seconds since 1970 at which it was made."""
        return _seconds(self.when) or 0.0


@dataclass(frozen=True)
class KeptPlan:
    """A plan and its card. unwritten: why its folder does not hold it yet; empty where it does."""

    plan: Plan
    card: PlanCard
    unwritten: str = ""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.card.name


@dataclass(frozen=True)
class Listing:
    """All plans of a place in figures, the oldest first; those that were deleted; files that cannot be read."""

    plans: tuple[PlanSummary, ...]
    deleted: tuple[DeletedPlan, ...] = ()
    unread: tuple[UnreadFile, ...] = ()


class KeptPlans(Protocol):
    """What keeps plans by their ids. Whoever calls it may wait for a disk."""

    def put(self, kept: KeptPlan) -> str:
        """Keep a plan under a new id."""
        ...

    def get(self, key: str) -> KeptPlan:
        """The plan of an id; Refused (404) where there is none."""
        ...

    def listing(self) -> Listing:
        """All plans in figures."""
        ...

    def unwritten(self) -> tuple[KeptPlan, ...]:
        """Plans that go with the server, because their folder cannot take them even now."""
        ...

    def change(self, key: str, name: str | None, note: str | None) -> None:
        """Give a plan another name, or note, or both."""
        ...

    def drop(self, key: str) -> None:
        """Delete a plan; `restore` undoes it."""
        ...

    def restore(self, key: str) -> str:
        """Undo a deletion; the id of the plan from now on."""
        ...

    def draft(self, key: str) -> HandDraft:
        """The changes by hand that wait at a plan; an empty draft where there are none."""
        ...

    def keep_draft(self, key: str, change: DraftChange) -> HandDraft:
        """Put a draft in the place of the one that was changed; Refused (409) where that is another one by now."""
        ...


def now() -> str:
    """This moment, as cards write it."""
    return moment(datetime.now(UTC).timestamp())


def moment(seconds: float) -> str:
    """Seconds since 1970, as cards write them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def slug(name: str, other: str = "plan") -> str:
    """A name as a part of file names and addresses: letters, digits and '-' alone."""
    plain = unicodedata.normalize("NFKD", _ENDING.sub("", name)).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain)[:LONGEST_SLUG].strip("-") or other


def no_plan(key: str) -> Refused:
    """What is said where no plan has an id."""
    return Refused(404, f"no plan '{key[:60]}' is kept here; it was deleted or moved away")


def check_base(found: HandDraft, change: DraftChange) -> None:
    """Refuse (409) a draft that was made of another one than is there now."""
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
