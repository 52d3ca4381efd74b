"""Which row of a bounded table each raw id has: found, admitted and evicted by compiled code, without torch.

A table is divided into parts by a hash of ids, as many whatever the number of ranks, so that every number of ranks
gives the same rows. A part owns the rows that follow its first one, and rank r of W has the parts p with p % W == r.
Row 0 is that of unknown ids: those that were not admitted, or have lost their row.

n rows here, K parts here
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.workloads.dynamic import Dynamic

MODULE = "training.systems.dynamic._id_rows"
MOST_PARTS, LEAST_ROWS = 64, 2**14  # of a table; rows of a part, whose share of ids is then right to 0.8 % (1 / root)
NO_ID, UNKNOWN = -1, -2  # instead of an id: of a row that nobody has, and of row 0
NO_ROW, ALL_HELD = -1, -2  # instead of a row, as the compiled code gives it
POLICIES = ("lfu", "lru", "age", "none")
OF_ROWS = ("ids", "seen", "last", "born")  # arrays of a part with a number for each row
WAITING = ("waiting", "times", "next")  # of ids that wait to be admitted
KEPT = (*OF_ROWS, *WAITING)  # that a checkpoint holds


def parts_of_table(rows: int) -> int:
    """Parts of a table of so many rows."""
    return max(1, min(MOST_PARTS, rows // LEAST_ROWS))


def check_compiled() -> None:
    """UsageError where the compiled code is missing, without which a lookup would be a loop in Python."""
    if compiled(MODULE) is None:
        raise UsageError(
            "model.dynamic needs compiled code, which was not built for want of a C compiler; install a wheel of "
            "recsmith, or a compiler, and install recsmith again"
        )


class Taken(NamedTuple):
    """The rows that ids have for a step, and which were taken from other ids.

    rows: of each id; 0 of unknown ones. again: (rows, ids) that get them, which others had before. missing: ids for
    which no row could be had, since the batch holds the ids of all. known: lookups of ids that had a row before.
    """

    rows: Ints
    again: tuple[Ints, Ints]
    missing: int
    known: int


class IdRows:
    """The ids of a table whose parts this rank has.

    rows: of the whole table. dynamic: who gets them. rank, ranks: of those that share the parts.
    """

    def __init__(self, rows: int, dynamic: Dynamic, rank: int = 0, ranks: int = 1) -> None:
        check_compiled()
        self.rows, self.dynamic, self.rank, self.ranks = rows, dynamic, rank, ranks
        self.parts = parts_of_table(rows)
        self.size = -(-rows // self.parts)
        self.mine = list(range(rank, self.parts, ranks))
        n = len(self.mine) * self.size
        waiting = n if dynamic.admit > 1 else 0
        small, each = np.uint32, len(self.mine)
        self.ids, self.seen, self.last, self.born = np.full(n, NO_ID), *(np.zeros(n, small) for _ in range(3))
        self.waiting, self.times = np.full(waiting, NO_ID), np.zeros(waiting, small)
        self.used, self.next = np.zeros(each, np.int64), np.zeros(each, np.int64)
        if self.mine[:1] == [0]:
            self.ids[0], self.used[0] = UNKNOWN, 1
        self._slots, self._waiting_slots = np.full(2 * n, -1, np.int32), np.full(2 * waiting, -1, np.int32)
        self._queue, self._queued = np.zeros(n, np.int32), np.zeros(each, np.int64)
        self._keys = np.zeros(n, small), np.zeros(n, small)

    @property
    def count(self) -> int:
        """Ids that have a row."""
        return int(np.maximum(self.used, 0).sum()) - (self.mine[:1] == [0])

    def parts_of(self, ids: Ints) -> Ints:
        """The part of the table to which each id belongs."""
        found = np.empty_like(ids)
        self._call("parts_of", 0, ids, found)
        return found

    def owners(self, ids: Ints) -> Ints:
        """The rank that has the part of each id."""
        return self.parts_of(ids) % self.ranks

    def look_up(self, ids: Ints) -> Ints:
        """The row of each id of parts of this rank, 0 of unknown ones; nothing is changed."""
        found = np.empty_like(ids)
        self._call("rows_of", 0, ids, np.empty(0, np.int64), found)
        return self._of_table(found)

    def take(self, ids: Ints, times: Ints, step: int) -> Taken:
        """The rows of the ids that a step reads, of parts of this rank; ids that have none may get one.

        ids: some may stand there more than once. times: how often the step holds each. step: later than all before.
        """
        found = np.empty_like(ids)
        self._call("rows_of", step, ids, times, found)
        unknown = np.flatnonzero(found == NO_ROW)
        if not len(unknown):
            return Taken(self._of_table(found), (ids[:0], ids[:0]), 0, int(times.sum()))
        new, places = np.unique(ids[unknown], return_inverse=True)
        counts = np.bincount(places, weights=times[unknown], minlength=len(new)).astype(np.int64)
        rows, again = np.empty_like(new), np.empty_like(new)
        self._call("placed", step, new, counts, rows, again)
        found[unknown] = rows[places]
        others = np.flatnonzero(again)
        again_rows = self._of_table(rows[others])
        known, missing = int(times.sum() - counts.sum()), int((rows == ALL_HELD).sum())
        return Taken(self._of_table(found), (again_rows, new[others]), missing, known)

    def id_of_rows(self) -> Iterator[tuple[int, Ints]]:
        """(first row, ids of that and of those that follow) of each part: NO_ID and UNKNOWN of those without one."""
        for number, part in enumerate(self.mine):
            first = part * self.size
            yield first, self.ids[number * self.size :][: min(self.size, self.rows - first)]

    def put(self, first: int, ids: Ints) -> None:
        """Have the rows of a part of this rank the ids of an exported table. first: row of the part."""
        number = self.mine.index(first // self.size)
        self.ids[number * self.size :][: len(ids)] = ids

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """What a checkpoint holds of each part, by 'part.array'."""
        kept = [name for name in KEPT if len(getattr(self, name))]
        return {f"{part}.{name}": each for part, arrays in self.arrays_of(kept) for name, each in arrays.items()}

    def arrays_of(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, npt.NDArray[Any]]]]:
        """(part, arrays of it by name, to be written into) of this rank's parts; `made` makes them known."""
        for number, part in enumerate(self.mine):
            here = {"next": slice(number, number + 1)}
            of_rows = slice(number * self.size, (number + 1) * self.size)
            yield part, {name: getattr(self, name)[here.get(name, of_rows)] for name in names}

    def begin(self, before: Mapping[str, Any]) -> Ints | None:
        """Take the ids of a table of another training; the row there of each row here where rows moved, -1 of new ones.

        before: arrays over all rows of that table, and over all places where its ids wait, where they are known.
        """
        there = None if len(before["ids"]) == self.rows else self.moved_rows(before)
        of_row = np.arange(self.rows) if there is None else there
        for part, arrays in self.arrays_of(OF_ROWS):
            of_part = of_row[part * self.size :][: self.size]
            for name, own in arrays.items():
                own[: len(of_part)] = np.where(of_part < 0, NO_ID if name == "ids" else 0, before[name][of_part])
        if there is None and self.dynamic.admit > 1 and "waiting" in before:
            for part, arrays in self.arrays_of(WAITING):
                for name, own in arrays.items():
                    own[:] = before[name][part * len(own) : (part + 1) * len(own)]
        self.made()
        return there

    def moved_rows(self, before: Mapping[str, Any]) -> Ints:
        """The row there of each row here, -1 of new ones: an id of before has a row in the part that is its own now.

        Of a part that has no room for all of its ids, those stay that would have lost their rows last.
        """
        ids, there = before["ids"], np.full(self.rows, -1)
        there[0] = 0  # of unknown ids
        known = np.flatnonzero(ids >= 0)
        parts, (seen, last, born) = self.parts_of(ids[known]), (before[name][known] for name in OF_ROWS[1:])
        keys = {"lfu": (last, seen), "lru": (seen, last), "age": (born,), "none": (-born.astype(np.int64),)}
        leaving = np.lexsort((ids[known], *keys[self.dynamic.evict], parts))  # in a part, those that leave first
        ends = np.cumsum(np.bincount(parts, minlength=self.parts))
        for part, of_part in enumerate(np.split(leaving, ends[:-1])):
            first = part * self.size + (part == 0)
            room = min(self.rows, (part + 1) * self.size) - first
            stay = np.sort(known[of_part[max(0, len(of_part) - room) :]])
            there[first : first + len(stay)] = stay
        return there

    def made(self) -> None:
        """Find ids again after they were written: those of `state`, or by `put`."""
        for number, first in enumerate(range(0, len(self.ids), self.size or 1)):
            self.used[number] = np.count_nonzero(self.ids[first : first + self.size] != NO_ID)
        self._call("made", 0)

    def _of_table(self, found: Ints) -> Ints:
        """Rows of the whole table, of rows here; 0 where there is none."""
        if self.parts == 1:
            return np.maximum(found, 0)
        part, row = np.divmod(np.maximum(found, 0), max(self.size, 1))
        return np.where(found < 0, 0, (part * self.ranks + self.rank) * self.size + row)

    def _call(self, name: str, step: int, *more: Ints) -> None:
        numbers = (self.size, self.parts, self.ranks, POLICIES.index(self.dynamic.evict), self.dynamic.admit, step)
        state = (
            self._slots, self.ids, self.seen, self.last, self.born, self._queue, *self._keys, self.used, self._queued,
            self._waiting_slots, self.waiting, self.times, self.next, np.array([*numbers, self.rows]),
        )  # fmt: skip
        call_compiled(getattr(compiled(MODULE), name), (*state, *map(np.ascontiguousarray, more)))
