"""The spec of samples that are made of events, without reading any."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from recsmith._types import noun
from recsmith.data.source import found_beside
from recsmith.errors import LARGEST_SEED, check_rules, outside, too_small
from recsmith.workloads.workload import LARGEST_COUNT

SHARES = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0), "all": (0.0, 1.0)}
MOST_EVENTS = 2**16  # of a history
MOST_GENERATED = 2**31


@noun
class EventFiles:
    """Events in Parquet or Arrow files, one a row, in any order.

    paths: files, or folders of them. user, item, time: columns of whole numbers: who, what, and when, such as seconds
    since 1970, as which timestamps and text such as 2009-12-14 02:52:24 are read. action: the column of what was done,
    0 and more; none: events have no actions. labels: columns, 0 to 1, of what an event's sample is trained on.
    num_items, num_users, num_actions: of ids; none: as the files have them.
    """

    paths: tuple[str, ...]
    user: str = "user"
    item: str = "item"
    time: str = "time"
    action: str | None = None
    labels: tuple[str, ...] = ()
    num_items: int | None = None
    num_users: int | None = None
    num_actions: int | None = None

    def __post_init__(self) -> None:
        named = [self.user, self.item, self.time, *((self.action,) if self.action else ()), *self.labels]
        twin = next((name for name in named if named.count(name) > 1), None)
        check_rules(
            None if self.paths else "files.paths is empty; give the files of events, or their folder",
            None if twin is None else f"files names column '{twin}' twice; each column has one meaning",
            *(outside(f"files.{name}", getattr(self, name), 1, LARGEST_COUNT - 1)
              for name in ("num_items", "num_users", "num_actions")),
        )  # fmt: skip


@noun
class MovieLensEvents:
    """The ratings of a MovieLens folder: actions are half stars, and the label `liked` is 1 from `positive` stars on.

    path: of the folder. positive: stars. max_user_id: ratings of users above it are left out.
    """

    path: str
    positive: float = 4.0
    max_user_id: int | None = None


@noun
class GeneratedEvents:
    """Events that are drawn, with a truth that is known: items are of the kind of the one before, or of a taste.

    users, items, kinds: how many there are. events: of a mean user; their numbers differ as those of real users do.
    stay: chance that an item is of the kind of the one before; else it is of the user's favourite kind of the time with
    chance `taste`, and of any kind otherwise. drift: events of a user after which another kind is the favourite; none:
    never. zipf: exponent by which items of a kind are drawn. seed: from which all follows.
    """

    users: int = 1000
    items: int = 1000
    kinds: int = 20
    events: int = 50
    stay: float = 0.4
    taste: float = 0.8
    drift: int | None = None
    zipf: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_rules(
            *(outside(f"generated.{name}", getattr(self, name), 1, MOST_GENERATED)
              for name in ("users", "items", "kinds", "events", "drift")),
            outside("generated.seed", self.seed, 0, LARGEST_SEED),
            None if self.kinds <= self.items else
            f"generated.kinds is {self.kinds} and there are {self.items} items; each kind has one at least",
            None if self.users * self.events < MOST_GENERATED else
            f"generated has {self.users * self.events:,} events; at most {MOST_GENERATED:,} are made",
            *(None if 0 <= getattr(self, name) <= 1 else f"generated.{name} is {getattr(self, name)}; it is a chance"
              for name in ("stay", "taste")),
            None if 0 <= self.zipf <= 10 else f"generated.zipf is {self.zipf}; it must be 0 to 10",
        )  # fmt: skip


@noun
class SequencesSpec:
    """Samples made of events: each event is a target, with the events that its user had before it.

    Events come from one of files, movielens and generated. A history holds the newest `longest` events of strictly
    earlier times, oldest first; a target whose user has fewer than `least` of them is left out. split: train is the
    first 80 % of the targets, valid the next 10 %, test the last 10 %. split_by: time is that of targets, of all users;
    last takes each user's last target for test, the one before for valid. negatives: samples beside each target, with
    an item drawn from all that the user never had, whose label is 0, and the label `next` in place of the events' own.
    candidates: such items in the same sample, as further ids of feature `target`, for model.loss: softmax. seed: of
    these.
    """

    files: EventFiles | None = None
    movielens: MovieLensEvents | None = None
    generated: GeneratedEvents | None = None
    longest: int = 200
    least: int = 1
    split: Literal["train", "valid", "test", "all"] = "all"
    split_by: Literal["time", "last"] = "time"
    negatives: int = 0
    candidates: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        given = [name for name in ("files", "movielens", "generated") if getattr(self, name) is not None]
        unlabelled = not (self.negatives or self.candidates) and (
            self.generated is not None or (self.files is not None and not self.files.labels)
        )
        check_rules(
            None
            if len(given) == 1
            else f"events come from {' and '.join(given) or 'nowhere'}; give one of files, movielens and generated",
            outside("longest", self.longest, 1, MOST_EVENTS),
            outside("least", self.least, 0, max(1, self.longest)),  # which is told by itself where it is none
            too_small("negatives", self.negatives),
            outside("negatives", self.negatives, 0, 1000),
            outside("candidates", self.candidates, 0, 2**16),
            f"negatives is {self.negatives} and candidates is {self.candidates}; the ones are samples of their own, "
            "the others stand in the sample of their target, so give one"
            if self.negatives and self.candidates
            else None,
            outside("seed", self.seed, 0, LARGEST_SEED),
            "targets have no labels: the events have none, and negatives is 0; name their columns (files.labels), or "
            "give negatives, or candidates"
            if unlabelled
            else None,
        )

    def beside(self, folder: Path) -> "SequencesSpec":
        """With paths that are meant from a folder."""
        movielens, files = self.movielens, self.files
        if movielens is not None:
            movielens = replace(movielens, path=found_beside(movielens.path, folder))
        if files is not None:
            files = replace(files, paths=tuple(found_beside(path, folder) for path in files.paths))
        return replace(self, movielens=movielens, files=files)
