"""The map from raw ids to rows of a bounded table: lookup, admission and eviction by compiled code, without torch.

A table is divided into parts by a hash of ids. The number of parts does not depend on the number of ranks, so any
number of ranks gives the same rows. A part owns a range of rows, and rank r of W has the parts p with p % W == r.
Row 0 is for unknown ids: those that were not admitted, or have lost their row.

n rows on this rank, K parts on this rank
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
MOST_PARTS, LEAST_ROWS = 64, 2**14  # most parts; rows of a part, so that its share of ids is right to 0.8 % (1 / root)
NO_ID, UNKNOWN = -1, -2  # in place of an id: for a free row, and for row 0
NO_ROW, ALL_HELD = -1, -2  # in place of a row, as the compiled code returns it
POLICIES = ("lfu", "lru", "age", "none")
OF_ROWS = ("ids", "seen", "last", "born")  # arrays of a part with an entry for each row
WAITING = ("waiting", "times", "next")  # arrays of ids that wait to be admitted
KEPT = (*OF_ROWS, *WAITING)  # arrays that a checkpoint holds


def parts_of_table(rows: int) -> int:
    """Number of parts of a table."""
    return max(1, min(MOST_PARTS, rows // LEAST_ROWS))


def check_compiled() -> None:
    """Raise UsageError if the compiled code is missing; without it, a lookup would be a loop in Python."""
    if compiled(MODULE) is None:
        raise UsageError(
            "model.dynamic needs compiled code, which was not built for want of a C compiler; install a wheel of "
            "recsmith, or a compiler, and install recsmith again"
        )


class Taken(NamedTuple):
    """The rows of ids for a step, and which rows were taken from other ids.

    rows: of each id; 0 for unknown ids. again: (rows that were taken from other ids, their new ids). missing: number of
    ids that got no row, because the batch reads all rows. known: number of lookups of ids that had a row before.
    """

    rows: Ints
    again: tuple[Ints, Ints]
    missing: int
    known: int


class IdRows:
    """This rank's parts of the map of a table.

    rows: of the whole table. dynamic: rule of admission and eviction. rank, ranks: among which parts are divided.
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
        """Number of ids that have a row on this rank."""
        return int(np.maximum(self.used, 0).sum()) - (self.mine[:1] == [0])

    def parts_of(self, ids: Ints) -> Ints:
        """The part of the table to which each id belongs."""
        found = np.empty_like(ids)
        self._call("parts_of", 0, ids, found)
        return found

    def owners(self, ids: Ints) -> Ints:
        """The rank that owns each id's part."""
        return self.parts_of(ids) % self.ranks

    def look_up(self, ids: Ints) -> Ints:
        """The row of each id of this rank's parts, 0 for unknown ids; changes nothing."""
        found = np.empty_like(ids)
        self._call("rows_of", 0, ids, np.empty(0, np.int64), found)
        return self._of_table(found)

    def take(self, ids: Ints, times: Ints, step: int) -> Taken:
        """The rows of the ids that a step reads, all of this rank's parts; ids without a row may get one.

        Args:
            ids: may contain duplicates.
            times: how often the step reads each entry of `ids`.
            step: larger than in all earlier calls.
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
        """Yield (first row, ids of the rows from there on) of each part; NO_ID or UNKNOWN for rows without an id."""
        for number, part in enumerate(self.mine):
            first = part * self.size
            yield first, self.ids[number * self.size :][: min(self.size, self.rows - first)]

    def put(self, first: int, ids: Ints) -> None:
        """Set the ids of a part's rows from an exported table. first: first row of the part."""
        number = self.mine.index(first // self.size)
        self.ids[number * self.size :][: len(ids)] = ids

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that a checkpoint holds of each part, by 'part.array'."""
        kept = [name for name in KEPT if len(getattr(self, name))]
        return {f"{part}.{name}": each for part, arrays in self.arrays_of(kept) for name, each in arrays.items()}

    def arrays_of(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, npt.NDArray[Any]]]]:
        """Yield (part, its arrays by name) of this rank's parts; call `made` after writing into them."""
        for number, part in enumerate(self.mine):
            here = {"next": slice(number, number + 1)}
            of_rows = slice(number * self.size, (number + 1) * self.size)
            yield part, {name: getattr(self, name)[here.get(name, of_rows)] for name in names}

    def begin(self, before: Mapping[str, Any]) -> Ints | None:
        """Take over ids of a table of another training; returns the old row of each row, -1 for new ones.

        Returns None if no row moved.

        before: arrays over all rows of that table, and over all waiting ids, if they are known.
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
        """The old row of each row, -1 for new rows: each earlier id gets a row in its part of this table.

        If a part has no room for all of its ids, it keeps those that eviction would have taken last.
        """
        ids, there = before["ids"], np.full(self.rows, -1)
        there[0] = 0  # row of unknown ids
        known = np.flatnonzero(ids >= 0)
        parts, (seen, last, born) = self.parts_of(ids[known]), (before[name][known] for name in OF_ROWS[1:])
        keys = {"lfu": (last, seen), "lru": (seen, last), "age": (born,), "none": (-born.astype(np.int64),)}
        leaving = np.lexsort((ids[known], *keys[self.dynamic.evict], parts))  # by part, then order of eviction
        ends = np.cumsum(np.bincount(parts, minlength=self.parts))
        for part, of_part in enumerate(np.split(leaving, ends[:-1])):
            first = part * self.size + (part == 0)
            room = min(self.rows, (part + 1) * self.size) - first
            stay = np.sort(known[of_part[max(0, len(of_part) - room) :]])
            there[first : first + len(stay)] = stay
        return there

    def made(self) -> None:
        """Rebuild the hash tables after ids were written, into arrays of `state` or by `put`."""
        for number, first in enumerate(range(0, len(self.ids), self.size or 1)):
            self.used[number] = np.count_nonzero(self.ids[first : first + self.size] != NO_ID)
        self._call("made", 0)

    def _of_table(self, found: Ints) -> Ints:
        """Rows of the whole table from rows of this rank; 0 if there is none."""
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
