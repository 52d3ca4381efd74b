"""Which row each raw id has: the compiled map beside a slow one, and its laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith._compiled import compiled
from recsmith.training.systems.dynamic import id_rows
from recsmith.training.systems.dynamic.id_rows import IdRows
from recsmith.workloads import Dynamic

pytestmark = pytest.mark.skipif(compiled(id_rows.MODULE) is None, reason="needs the compiled code of dynamic tables")
BATCHES = st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=9), min_size=1, max_size=30)
RULES = st.builds(Dynamic, admit=st.integers(1, 3), evict=st.sampled_from(["lfu", "lru", "age", "none"]))


class SlowMap:
    """The same rules in dicts and sorted lists: id -> [row, times seen, step seen last, step of its row]."""

    def __init__(self, rows: int, rule: Dynamic) -> None:
        self.rows, self.rule = rows, rule
        self.having: dict[int, list[int]] = {}
        self.waiting: dict[int, int] = {}  # in the order in which they began to wait
        self.places: list[int | None] = [None] * rows
        self.next = 0

    def key(self, each: int) -> tuple[int, ...]:
        _, seen, last, born = self.having[each]
        return {"lfu": (seen, last, each), "lru": (last, seen, each), "age": (born, each)}[self.rule.evict]

    def take(self, batch: list[int], step: int) -> tuple[dict[int, int], dict[int, int], int]:
        counts = {each: batch.count(each) for each in sorted(set(batch))}
        again, missing = dict[int, int](), 0
        for each in [each for each in counts if each in self.having]:
            self.having[each][1:3] = [self.having[each][1] + counts[each], step]
        for each in [each for each in counts if each not in self.having]:
            full = len(self.having) == self.rows - 1
            if full and self.rule.evict == "none":
                continue
            seen = self.waiting.get(each, 0) + counts[each]
            if seen < self.rule.admit:
                self.wait(each, seen)
                continue
            if self.waiting.pop(each, None) is not None:
                self.places[self.places.index(each)] = None
            row = len(self.having) + 1
            if full:
                losers = [other for other in self.having if self.having[other][2] != step]
                if not losers:
                    missing += 1
                    continue
                row = self.having.pop(min(losers, key=self.key))[0]
                again[row] = each
            self.having[each] = [row, seen, step, step]
        return {each: self.having[each][0] if each in self.having else 0 for each in counts}, again, missing

    def wait(self, each: int, seen: int) -> None:
        if each not in self.waiting:
            old, self.places[self.next] = self.places[self.next], each
            self.next = (self.next + 1) % self.rows
            if old is not None:
                del self.waiting[old]
        self.waiting[each] = seen


@given(rows=st.integers(2, 14), rule=RULES, batches=BATCHES)
def test_rows_are_those_of_the_slow_map(rows: int, rule: Dynamic, batches: list[list[int]]):
    fast, slow = IdRows(rows, rule), SlowMap(rows, rule)
    for step, batch in enumerate(batches, 1):
        taken = fast.take(np.array(batch), np.ones(len(batch), np.int64), step)
        found, again, missing = slow.take(batch, step)
        assert dict(zip(batch, taken.rows.tolist(), strict=True)) == found
        assert dict(zip(*(each.tolist() for each in taken.again), strict=True)) == again
        assert (taken.missing, fast.count) == (missing, len(slow.having))
        everyone = np.arange(26)
        assert fast.look_up(everyone).tolist() == [slow.having.get(each, [0])[0] for each in everyone.tolist()]


@given(rule=RULES, batches=BATCHES, kept_at=st.integers(0, 29), ranks=st.integers(1, 5))
def test_any_ranks_and_any_checkpoint_give_the_same_rows(
    rule: Dynamic, batches: list[list[int]], kept_at: int, ranks: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_rows, "LEAST_ROWS", 5)  # several parts in 23 rows, the last of them shorter
        alone, shared = IdRows(23, rule), [IdRows(23, rule, rank, ranks) for rank in range(ranks)]
        assert alone.parts == 4
        for step, batch in enumerate(batches, 1):
            ids, ones = np.array(batch), np.ones(len(batch), np.int64)
            taken = alone.take(ids, ones, step)
            owners = shared[0].owners(ids)
            for rank, part in enumerate(shared):
                mine = part.take(ids[owners == rank], ones[owners == rank], step)
                assert mine.rows.tolist() == taken.rows[owners == rank].tolist()
            if step == kept_at:
                shared = [loaded(part, rule, rank, ranks) for rank, part in enumerate(shared)]
        state = alone.state()
        for part in shared:
            for key, array in part.state().items():
                assert np.array_equal(array, state[key]), key


def loaded(saved: IdRows, rule: Dynamic, rank: int, ranks: int) -> IdRows:
    made = IdRows(saved.rows, rule, rank, ranks)
    for key, array in made.state().items():
        array[:] = saved.state()[key]
    made.made()
    return made


@given(rule=RULES, batches=BATCHES, rows=st.integers(12, 40), ranks=st.integers(1, 3))
def test_a_table_of_more_rows_gives_each_id_that_has_room_the_row_of_its_part(
    rule: Dynamic, batches: list[list[int]], rows: int, ranks: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_rows, "LEAST_ROWS", 5)
        before = IdRows(12, rule)
        for step, batch in enumerate(batches, 1):
            before.take(np.array(batch), np.ones(len(batch), np.int64), step)
        arrays = {name: getattr(before, name)[:12] for name in id_rows.OF_ROWS}
        arrays |= {name: getattr(before, name) for name in id_rows.WAITING}
        everyone, moved = np.arange(26), []
        after = [IdRows(rows, rule, rank, ranks) for rank in range(ranks)]
        moved = [each.begin(arrays) for each in after]
        there = np.arange(12) if moved[0] is None else moved[0]
        owners, was, now = after[0].owners(everyone), before.look_up(everyone), np.zeros(26, np.int64)
        for rank, table in enumerate(after):
            now[owners == rank] = table.look_up(everyone[owners == rank])
        kept = np.flatnonzero(now)
        assert np.array_equal(there[now[kept]], was[kept])
        assert set(kept) <= set(np.flatnonzero(was))
        assert sum(table.count for table in after) == len(kept)
        lost = len(np.flatnonzero(was)) - len(kept)
        full = np.bincount(after[0].parts_of(everyone[was > 0]), minlength=after[0].parts)
        rooms = [
            min(rows, (part + 1) * after[0].size) - part * after[0].size - (part == 0) for part in range(len(full))
        ]
        assert lost == np.maximum(full - rooms, 0).sum()


def test_a_row_of_the_batch_is_never_given_away():
    table = IdRows(4, Dynamic(evict="lru"))
    one = np.ones(4, np.int64)
    assert table.take(np.array([1, 2, 3, 9]), one, 1).missing == 1
    assert sorted(table.look_up(np.array([1, 2, 3, 9])).tolist()) == [0, 1, 2, 3]


def test_a_lookup_costs_the_same_in_a_table_of_any_size():
    """Counted, not timed: what a step touches of a map are the rows of its ids, and of those that lose them."""
    table = IdRows(20_000, Dynamic(evict="lfu"))
    table.take(np.arange(19_999), np.ones(19_999, np.int64), 1)
    before = {name: getattr(table, name).copy() for name in ("ids", "seen", "last", "born")}
    table.take(np.arange(10**9, 10**9 + 50), np.ones(50, np.int64), 2)
    changed = [np.count_nonzero(before[name] != getattr(table, name)) for name in before]
    assert max(changed) == 50


def test_arrays_of_another_version_are_refused():
    from recsmith.errors import UsageError

    table: Any = IdRows(10, Dynamic())
    table.seen = table.seen.astype(np.int64)
    with pytest.raises(UsageError, match="built from another version"):
        table.look_up(np.array([1]))
