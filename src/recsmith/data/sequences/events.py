"""Events as arrays, sorted by user and time: read from files or a MovieLens folder, or generated.

E events, L labels of an event
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._random import ZipfLaw, random_words, uniform
from recsmith._types import Floats, Ints, record
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import Singles
from recsmith.data.columns.times import seconds_of
from recsmith.data.movielens import read_ratings
from recsmith.data.parquet.arrow import ColumnFile, column_files
from recsmith.data.sequences.spec import EventFiles, GeneratedEvents, MovieLensEvents, SequencesSpec
from recsmith.errors import CorruptFile, UsageError
from recsmith.units import counted

HALF_STARS = 21  # number of different ratings in half stars, from 0 to 10 stars
START, STEP_S = 1_000_000_000, 3600  # time of the first generated event; mean seconds between two events of a user


@record
class UserEvents:
    """Events sorted by user and time; events of the same user and time keep their original order.

    users, items, times: (E,). actions: (E,), or None. labels: (E, L). label_names: names of the labels. num_users,
    num_items, num_actions: bounds of the ids. out_of_order: number of events that came after a later one of their user.
    numbers: position of each event in the original order (E,).
    """

    users: Ints
    items: Ints
    times: Ints
    actions: Ints | None
    labels: Singles
    label_names: tuple[str, ...]
    num_users: int
    num_items: int
    num_actions: int
    out_of_order: int
    numbers: Ints

    @property
    def digest(self) -> str:
        """Digest of users, items, times, actions and labels."""
        held = hashlib.sha256(self.labels.tobytes())
        for each in (self.users, self.items, self.times, self.actions):
            held.update(b"" if each is None else each.tobytes())
        return held.hexdigest()[:16]


def read_events(spec: SequencesSpec) -> UserEvents:
    """Read or generate the events of a spec.

    Raises:
        UsageError: files are missing, or there are no events.
        CorruptFile: an id, an action, a time or a label is invalid.
    """
    if spec.files is not None:
        return _of_files(spec.files)
    if spec.movielens is not None:
        return _of_movielens(spec.movielens)
    assert spec.generated is not None  # one of the three is there
    return drawn_events(spec.generated)[0]


def _of_movielens(spec: MovieLensEvents) -> UserEvents:
    users, movies, stars, times = read_ratings(Path(spec.path) / "ratings.csv")
    wanted = np.flatnonzero(users <= (spec.max_user_id or users.max(initial=0)))
    if not len(wanted):
        raise UsageError(f"no rating in '{spec.path}' is of a user up to {spec.max_user_id}; give a larger max_user_id")
    known_users, user = np.unique(users[wanted], return_inverse=True)
    known_movies, movie = np.unique(movies[wanted], return_inverse=True)
    return _sorted(
        user.astype(np.int64), movie.astype(np.int64), times[wanted], np.round(2 * stars[wanted]).astype(np.int64),
        (stars[wanted] >= spec.positive).astype(np.float32)[:, None], ("liked",),
        (len(known_users), len(known_movies), HALF_STARS),
    )  # fmt: skip


def _of_files(spec: EventFiles) -> UserEvents:
    names = [spec.user, spec.item, spec.time, *((spec.action,) if spec.action else ())]
    whole: dict[str, list[Ints]] = {name: [] for name in names}
    labels: list[Singles] = []
    for path in column_files(spec.paths):
        file = ColumnFile(path)
        missing = next((name for name in (*names, *spec.labels) if name not in file.names), None)
        if missing is not None:
            raise CorruptFile(f"'{path}' has no column '{missing}'; its columns are {', '.join(file.names[:12])}")
        for part in range(len(file.sizes)):
            table = file.read(part, [*names, *spec.labels])
            for name in names:
                column = _seconds(table[name], path, name) if name == spec.time else table[name]
                whole[name].append(_whole(column, name, path, least=-(2**62) if name == spec.time else 0))
            labels.append(_labels(table, spec.labels, path))
    found = [np.concatenate(whole[name]) if whole[name] else np.zeros(0, np.int64) for name in names]
    if not len(found[0]):
        raise UsageError(f"{', '.join(spec.paths)} hold no event; give the files of events")
    actions = found[3] if spec.action else None
    counts = (
        _rows(found[0], spec.num_users, "users", "num_users"), _rows(found[1], spec.num_items, "items", "num_items"),
        0 if actions is None else _rows(actions, spec.num_actions, "actions", "num_actions"),
    )  # fmt: skip
    return _sorted(found[0], found[1], found[2], actions, np.concatenate(labels), spec.labels, counts)


def _seconds(column: Any, path: Path, name: str) -> Any:
    """Timestamps and texts of times in seconds; whole numbers, of any unit, and columns with nulls unchanged."""
    arrow = pyarrow()
    if column.null_count or not (arrow.types.is_temporal(column.type) or "string" in str(column.type)):
        return column
    return arrow.chunked_array([seconds_of(arrow.concat_arrays(column.chunks), f"'{path}': column '{name}'")])


def _whole(column: Any, name: str, path: Path, least: int) -> Ints:
    if column.null_count:
        raise CorruptFile(f"'{path}' has {counted(column.null_count, 'event')} without '{name}'; leave such events out")
    found = np.asarray(column.to_numpy())
    if found.dtype.kind not in "iu":
        raise CorruptFile(f"column '{name}' of '{path}' holds {found.dtype}; events have whole numbers in it")
    if found.dtype.kind == "u" and len(found) and found.max() >= 2**62:
        raise CorruptFile(f"column '{name}' of '{path}' holds {found.max()}; numbers of events are below 2^62")
    found = found.astype(np.int64)
    if len(found) and (found.min() < least or found.max() >= 2**62):
        odd = int(found.min() if found.min() < least else found.max())
        raise CorruptFile(f"column '{name}' of '{path}' holds {odd}; ids are 0 and more, times whole seconds")
    return found


def _labels(table: Any, names: tuple[str, ...], path: Path) -> Singles:
    made = np.zeros((table.num_rows, len(names)), np.float32)
    for at, name in enumerate(names):
        if table[name].null_count:
            raise CorruptFile(
                f"'{path}' has {counted(table[name].null_count, 'event')} without label '{name}'; a target needs one, "
                "so leave such events out, or the label"
            )
        made[:, at] = np.asarray(table[name].to_numpy(), np.float32)
        odd = ~((made[:, at] >= 0) & (made[:, at] <= 1))
        if odd.any():
            raise CorruptFile(f"label '{name}' of '{path}' holds {made[odd, at][0]:g}; labels are 0 to 1")
    return made


def _rows(ids: Ints, said: int | None, what: str, key: str) -> int:
    largest = int(ids.max(initial=0))
    if said is not None and largest >= said:
        raise CorruptFile(f"an event has id {largest} of {what}, and files.{key} is {said:,}; give a larger one")
    return largest + 1 if said is None else said


def _sorted(
    users: Ints, items: Ints, times: Ints, actions: Ints | None, labels: Singles, names: tuple[str, ...],
    counts: tuple[int, int, int],
) -> UserEvents:  # fmt: skip
    by_user = np.argsort(users, kind="stable")
    later = (np.diff(times[by_user]) < 0) & (np.diff(users[by_user]) == 0)
    order = np.lexsort((times, users))
    return UserEvents(
        users=users[order], items=items[order], times=times[order],
        actions=None if actions is None else actions[order], labels=labels[order], label_names=names,
        num_users=counts[0], num_items=counts[1], num_actions=counts[2], out_of_order=int(later.sum()), numbers=order,
    )  # fmt: skip


def drawn_events(spec: GeneratedEvents) -> tuple[UserEvents, Floats]:
    """Generated events, and the truth: the probability of each kind with which each event was drawn (E, kinds).

    Item i is of kind i modulo kinds; the items of a kind are drawn from a Zipf distribution.
    """
    seed = spec.seed
    spread = uniform(random_words(seed, 0, "events of users", spec.users))
    counts = np.maximum(2, np.round(spec.events * np.exp(1.6 * (spread + spread[::-1] - 1)))).astype(np.int64)
    users = np.repeat(np.arange(spec.users), counts)
    total = len(users)
    starts = np.cumsum(counts) - counts
    place = np.arange(total) - starts[users]
    first = (uniform(random_words(seed, 0, "tastes", spec.users)) * spec.kinds).astype(np.int64)
    favourite = (first[users] + (0 if spec.drift is None else place // spec.drift)) % spec.kinds
    words = [uniform(random_words(seed, 0, name, total)) for name in ("stays", "taste", "any kind", "item", "times")]
    anew = np.where(words[1] < spec.taste, favourite, (words[2] * spec.kinds).astype(np.int64))
    kept = (words[0] < spec.stay) & (place > 0)
    source = np.maximum.accumulate(np.where(kept, 0, np.arange(total)))
    kinds = anew[source]
    sizes = (spec.items - np.arange(spec.kinds) + spec.kinds - 1) // spec.kinds
    items = np.zeros(total, np.int64)
    for kind in range(spec.kinds):
        mine = kinds == kind
        items[mine] = kind + spec.kinds * ZipfLaw(int(sizes[kind]), spec.zipf).ranks(words[3][mine])
    gaps = np.maximum(1, np.round(-STEP_S * np.log1p(-words[4]))).astype(np.int64)
    passed = np.cumsum(gaps)
    begun = (uniform(random_words(seed, 0, "begins", spec.users)) * STEP_S * spec.events).astype(np.int64)
    times = START + begun[users] + passed - passed[starts[users]]
    chances = np.full((total, spec.kinds), (1 - spec.taste) / spec.kinds)
    chances[np.arange(total), favourite] += spec.taste
    before = np.where(place > 0, np.roll(kinds, 1), favourite)
    stays = np.where(place > 0, spec.stay, 0.0)
    chances *= (1 - stays)[:, None]
    chances[np.arange(total), before] += stays
    events = _sorted(
        users, items, times, None, np.zeros((total, 0), np.float32), (), (spec.users, spec.items, 0)
    )  # fmt: skip
    return events, chances
