"""Plans in a folder: one file per plan, which every command can read, and a small card file with its name and note.

The folder is the only record: each request reads it again, so two servers and the command line may work in it at
once. A file's content is cached as long as the file stays unchanged. folder_files.py describes the files.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import check_schema, decode, dump_json, encode, parse, read_bytes
from recsmith.plans import Plan, plan_to_raw
from recsmith.web.serving import folder_files as on_disk
from recsmith.web.serving.answers import DeletedPlan, PlanSummary, UnreadFile
from recsmith.web.serving.edits import DraftChange, HandDraft, next_draft
from recsmith.web.serving.folder_files import CARD, DELETED, DRAFT, PLAN, beside
from recsmith.web.serving.kept_plans import KeptPlan, Listing, PlanCard, check_base, moment, no_plan, slug
from recsmith.web.serving.settings import Refused, Settings
from recsmith.web.serving.uploads import read_upload

KEPT_SCHEMA, DRAFT_SCHEMA = "recsmith/kept/1", "recsmith/draft/1"
MARK = b"recsmith/plan/1"  # in the first bytes of every plan file that RecSmith writes
DAMAGED = "damaged"  # version of an unreadable draft; the next draft renames its file to this
HEAD = 2**16  # bytes at the start of a file that are searched for MARK
MOST_DELETED = 200  # newest deleted plans that are listed

Signs = tuple[object, ...]


class PlanFolder:
    """The plans of a folder; thread-safe."""

    def __init__(self, path: Path, settings: Settings, summary: Callable[[str, KeptPlan], PlanSummary]) -> None:
        self.path, self.settings, self.summary = on_disk.made(path), settings, summary
        self.turn = on_disk.Turn(self.path)
        self.figures: dict[Path, tuple[Signs, PlanSummary | UnreadFile | None]] = {}
        self.opened: OrderedDict[Path, tuple[Signs, Plan]] = OrderedDict()
        self.waiting: dict[str, KeptPlan] = {}  # plans not yet written, because the folder could not be written to
        self.lock = threading.RLock()
        on_disk.sweep(self.path)

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> KeptPlan:
        """The plan of an id; Refused (404) if there is none."""
        self.write_waiting()
        if key in self.waiting:
            return self.waiting[key]
        path = self._path(key)
        return KeptPlan(self._plan(path), self._card(path))

    def listing(self) -> Listing:
        """Summaries of all plans, files that cannot be read, and names of deleted plans."""
        self.write_waiting()
        files = on_disk.plan_files(self.path)
        found = [self._figures(key, path) for key, path in files.items()]
        with self.lock:
            for gone in self.figures.keys() - set(files.values()):
                del self.figures[gone]
        plans = [each for each in found if isinstance(each, PlanSummary)]
        plans += [self.summary(key, kept) for key, kept in self.waiting.items()]
        deleted = list(on_disk.plan_files(self.path / DELETED).items())[-MOST_DELETED:]
        return Listing(
            plans=tuple(sorted(plans, key=lambda plan: (plan.made, plan.id))),
            deleted=tuple(DeletedPlan(id=key, name=self._card(path).name) for key, path in deleted),
            unread=tuple(each for each in found if isinstance(each, UnreadFile)),
        )

    def _path(self, key: str, folder: str = "") -> Path:
        found = on_disk.plan_files(self.path / folder).get(key)
        if found is None:
            raise no_plan(key)
        return found

    def _figures(self, key: str, path: Path) -> PlanSummary | UnreadFile | None:
        """The list entry of a file: a plan's summary, why a damaged plan cannot be read, or None for other files."""
        signs = (on_disk.signature(path), on_disk.signature(beside(path, CARD)))
        with self.lock:
            known = self.figures.get(path)
        if known is None or known[0] != signs:
            known = (signs, self._looked_at(key, path))
            with self.lock:
                self.figures[path] = known
        return known[1]

    def _looked_at(self, key: str, path: Path) -> PlanSummary | UnreadFile | None:
        try:
            with path.open("rb") as file:
                if MARK not in file.read(HEAD):
                    return None
            return self.summary(key, KeptPlan(self._plan(path), self._card(path)))
        except FileNotFoundError:
            return None
        except (RecSmithError, OSError) as error:
            return UnreadFile(file=path.name, why=str(error))

    def _plan(self, path: Path) -> Plan:
        signs = (on_disk.signature(path),)
        with self.lock:
            known = self.opened.get(path)
        if known is None or known[0] != signs:
            if path.stat().st_size > self.settings.plan_bytes:
                raise UsageError(f"it has more than {self.settings.plan_bytes:,} bytes; use the command line for it")
            held = read_upload(bytes(read_bytes(path)), path.name, self.settings).held
            if not isinstance(held, Plan):
                raise CorruptFile(f"'{path.name}' holds no plan; open its file on the page instead")
            known = (signs, held)
        with self.lock:
            self.opened[path] = known
            self.opened.move_to_end(path)
            while len(self.opened) > self.settings.opened_plans:
                self.opened.popitem(last=False)
        return known[1]

    def _card(self, path: Path) -> PlanCard:
        """The card of a plan's file; if it is missing or damaged, one made from the file's name and time."""
        try:
            return self._read_card(path)
        except FileNotFoundError:
            return self._plain_card(path)
        except (RecSmithError, OSError) as error:
            return replace(self._plain_card(path), notes=(f"Its name and note cannot be read: {error}",))

    def _read_card(self, path: Path) -> PlanCard:
        file = beside(path, CARD)
        text = file.read_text("utf-8", "replace")
        return decode(PlanCard, check_schema(parse(text, file.name), KEPT_SCHEMA, file.name), file.name)

    def _plain_card(self, path: Path) -> PlanCard:
        signs = on_disk.signature(path)
        name = path.name.removesuffix(PLAN).encode("utf-8", "replace").decode()
        return PlanCard(name=name[:200].strip() or "plan", origin=f"file {path.name}"[:200],
                    when=moment(signs[2] / 1e9 if signs else 0))  # fmt: skip

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, kept: KeptPlan) -> str:
        """Keep a plan under an id made from its name. If it cannot be written now, it is kept in memory until then."""
        stem = slug(kept.name)
        try:
            with self.turn():
                return self._put((name for name in _numbered(stem) if name not in self.waiting), kept)
        except RecSmithError as error:
            with self.lock:
                key = next(key for key in _numbered(stem) if key not in self.waiting and self._is_free(key))
                self.waiting[key] = replace(kept, unwritten=str(error))
            return key

    def _put(self, names: Iterable[str], kept: KeptPlan) -> str:
        """Write a plan under the first of these names that is free."""
        text = dump_json(plan_to_raw(kept.plan))
        for name in names:
            path = self.path / f"{name}{PLAN}"
            if not self._is_free(name):
                continue
            self._write_card(path, kept.card)  # before the plan: a plan without its card would lose its name
            try:
                if on_disk.write_new(path, text):
                    return name
            except OSError:
                beside(path, CARD).unlink(missing_ok=True)
                raise
        raise AssertionError

    def _is_free(self, stem: str) -> bool:
        folders = (self.path, self.path / DELETED)
        return not any((folder / f"{stem}{ending}").exists() for folder in folders for ending in (PLAN, CARD, DRAFT))

    def write_waiting(self) -> None:
        """Write plans that the folder could not take before, until one fails again; the ids stay the same."""
        with self.lock:
            for key, kept in list(self.waiting.items()):
                try:
                    with self.turn():
                        self._put(_numbered(key), replace(kept, unwritten=""))
                except RecSmithError as error:
                    self.waiting[key] = replace(kept, unwritten=str(error))
                    return
                del self.waiting[key]

    def unwritten(self) -> tuple[KeptPlan, ...]:
        """Plans that the folder still cannot take."""
        self.write_waiting()
        return tuple(self.waiting.values())

    def _write_card(self, path: Path, card: PlanCard) -> None:
        on_disk.write(beside(path, CARD), dump_json({"schema": KEPT_SCHEMA, **encode(card)}))

    def change(self, key: str, name: str | None, note: str | None) -> None:
        """Change a plan's name or note; its file and its address stay the same."""
        given = {word: value for word, value in (("name", name), ("note", note)) if value is not None}
        self.write_waiting()
        with self.lock:
            if (kept := self.waiting.get(key)) is not None:
                self.waiting[key] = replace(kept, card=replace(kept.card, **given))
                return
        with self.turn():
            path = self._path(key)
            try:
                card = self._read_card(path)  # raises if it is damaged, so that it is not overwritten
            except FileNotFoundError:
                card = self._plain_card(path)
            self._write_card(path, replace(card, **given))

    def drop(self, key: str) -> None:
        """Delete a plan: its files move to the folder `deleted`."""
        with self.lock:
            if self.waiting.pop(key, None) is not None:
                return
        with self.turn():
            path = self._path(key)
            (self.path / DELETED).mkdir(exist_ok=True)
            self._move(path, self.path / DELETED, plan_first=True)

    def restore(self, key: str) -> str:
        """Undo a deletion and return the plan's id; another plan that took the name meanwhile keeps it."""
        with self.turn():
            path = self._path(key, DELETED)
            return on_disk.key_of(self._move(path, self.path, plan_first=False).name.removesuffix(PLAN))

    def _move(self, path: Path, folder: Path, *, plan_first: bool) -> Path:
        """Move all files of a plan to another folder; the plan itself first or last, because its place decides."""
        files = [ending for ending in (CARD, DRAFT) if beside(path, ending).exists()]
        files.insert(0 if plan_first else len(files), PLAN)
        for name in _numbered(path.name.removesuffix(PLAN)):
            target = folder / f"{name}{PLAN}"
            if not any(beside(target, ending).exists() for ending in files):
                for ending in files:
                    on_disk.move(beside(path, ending), beside(target, ending))
                return target
        raise AssertionError

    # --- drafts ---------------------------------------------------------------------------------------------------

    def draft(self, key: str) -> HandDraft:
        """The draft of a plan; an empty one if there is none."""
        if key in self.waiting:
            return HandDraft()
        return self._draft(self._path(key))

    def _draft(self, path: Path) -> HandDraft:
        file = beside(path, DRAFT)
        try:
            text = file.read_text("utf-8", "replace")
            return decode(HandDraft, check_schema(parse(text, file.name), DRAFT_SCHEMA, file.name), file.name)
        except FileNotFoundError:
            return HandDraft()
        except (RecSmithError, OSError):
            return HandDraft(version=DAMAGED)

    def keep_draft(self, key: str, change: DraftChange) -> HandDraft:
        """Replace the draft that was changed; Refused (409) if it is no longer the stored one, 507 without room."""
        self.write_waiting()
        if (kept := self.waiting.get(key)) is not None:
            raise Refused(507, kept.unwritten)
        digest = self._plan(self._path(key)).digest  # before the turn: who writes waiting plans takes it after the lock
        with self.turn():
            path = self._path(key)
            check_base(self._draft(path), change)
            made = next_draft(change, digest)
            if change.base == DAMAGED:
                beside(path, DRAFT).rename(beside(path, f"{DRAFT}.{DAMAGED}"))
            if made.steps:
                on_disk.write(beside(path, DRAFT), dump_json({"schema": DRAFT_SCHEMA, **encode(made)}))
            else:
                beside(path, DRAFT).unlink(missing_ok=True)
            return made


def _numbered(stem: str) -> Iterator[str]:
    """`stem`, `stem-2`, `stem-3` and so on, from which the first free name is taken."""
    yield stem
    for number in count(2):
        yield f"{stem}-{number}"
