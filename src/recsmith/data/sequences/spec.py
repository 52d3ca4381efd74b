"""The spec of samples that are made of events."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from recsmith._types import noun
from recsmith.data.source import found_beside
from recsmith.errors import LARGEST_SEED, check_rules, outside, too_small
from recsmith.workloads.workload import LARGEST_COUNT

SHARES = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0), "all": (0.0, 1.0)}
MOST_EVENTS = 2**16  # largest number of events in a history
MOST_GENERATED = 2**31  # largest number of generated events


@noun
class EventFiles:
    """Events in Parquet or Arrow files, one per row, in any order.

    paths: files, or folders of them. user, item, time: columns of whole numbers. Times may be of any unit; timestamps
    and text such as 2009-12-14 02:52:24 are read as seconds since 1970. action: the column of what the user did, as
    numbers from 0 on; none: events have no actions. labels: columns of labels, 0 to 1, of each event as a target.
    num_items, num_users, num_actions: number of ids; none: the largest id in the files + 1.
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
    """The ratings of a MovieLens folder as events: actions are ratings in half stars; the label is `liked`.

    path: the folder. positive: number of stars from which `liked` is 1. max_user_id: ratings of users with a larger id
    are left out.
    """

    path: str
    positive: float = 4.0
    max_user_id: int | None = None


@noun
class GeneratedEvents:
    """Generated events with a known truth: items are of the same kind as the one before, or of the user's taste.

    users, items, kinds: how many there are. events: mean number per user; users differ in their numbers as real users
    do. stay: probability that an item is of the kind of the one before; otherwise it is of the user's current favourite
    kind with probability `taste`, and else of a random kind. drift: number of events of a user after which the
    favourite kind changes; none: never. zipf: exponent of the Zipf distribution of a kind's items. seed: random seed.
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
    """Samples made of events: each event is a target, with its user's events before it as the history.

    Events come from one of files, movielens and generated. A history holds the newest `longest` events of strictly
    earlier times, oldest first; a target whose user has fewer than `least` earlier events is left out. split: train is
    the first 80 % of the targets, valid the next 10 %, test the last 10 %. split_by: `time` splits all users' targets
    by time; `last` takes each user's last target for test, the one before for valid. negatives: further samples per
    target, each with a random item that the user never had; the label `next`, which is 1 for targets and 0 for
    negatives, replaces the events' labels. candidates: number of such items in the target's own sample, as further ids
    of the feature `target`, for model.loss: softmax. seed: random seed of negatives and candidates.
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
            outside("least", self.least, 0, max(1, self.longest)),  # an invalid `longest` has an error of its own
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
        """The spec with its paths resolved in this folder, if they do not exist in the working directory."""
        movielens, files = self.movielens, self.files
        if movielens is not None:
            movielens = replace(movielens, path=found_beside(movielens.path, folder))
        if files is not None:
            files = replace(files, paths=tuple(found_beside(path, folder) for path in files.paths))
        return replace(self, movielens=movielens, files=files)
