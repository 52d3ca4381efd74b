"""Deduplicated batches hold each distinct row once, and expand to what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.data import Batch, JaggedIds
from recsmith.data import deduplication as module
from recsmith.data.deduplication import chosen, dedup_groups, deduplicated, distinct_rows, expanded, with_runs_once

ROWS = st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=12)


def bags(rows: list[list[int]], *, weighted: bool = False) -> JaggedIds:
    values = np.array([each for row in rows for each in row], np.int64)
    weights = (values % 2).astype(np.float32) if weighted else None
    return JaggedIds(values=values, lengths=np.array([len(row) for row in rows], np.int32), weights=weights)


def batch(**rows: list[list[int]]) -> Batch:
    count = len(next(iter(rows.values())))
    return Batch(
        dense=np.zeros((count, 0), np.float32), ids={name: bags(each) for name, each in rows.items()},
        labels=np.zeros((count, 1), np.float32), label_names=("y",), sample_ids=np.arange(count),
    )  # fmt: skip


def same(one: JaggedIds, other: JaggedIds) -> bool:
    return np.array_equal(one.values, other.values) and np.array_equal(one.lengths, other.lengths)


@pytest.mark.parametrize("colliding", [False, True])
@given(rows=ROWS, other=ROWS)
def test_rows_are_distinct_and_expand_to_what_they_were(
    colliding: bool, rows: list[list[int]], other: list[list[int]]
) -> None:
    count = min(len(rows), len(other))
    made = batch(a=rows[:count], b=other[:count])
    with pytest.MonkeyPatch.context() as patch:
        if colliding:
            patch.setattr(module, "_hashes", lambda each, salt: np.zeros(len(each.lengths), np.uint64))
        found = deduplicated(made, [("a", "b")])
    pairs = [(tuple(a), tuple(b)) for a, b in zip(rows, other, strict=False)]
    assert len(found.ids["a"].lengths) == len(found.ids["b"].lengths) == len(set(pairs))
    assert [pairs.index(pair) for pair in dict.fromkeys(pairs)] == distinct_rows([made.ids["a"], made.ids["b"]])[
        0
    ].tolist()
    again = expanded(found)
    assert all(same(again.ids[name], made.ids[name]) for name in "ab")
    nearby = deduplicated(made, [("a", "b")], nearby=True)
    assert all(same(expanded(nearby).ids[name], made.ids[name]) for name in "ab")
    after = deduplicated(nearby, [("a", "b")])  # finds what was left
    assert all(same(after.ids[name], found.ids[name]) for name in "ab")
    assert np.array_equal(after.inverse["a"], found.inverse["a"])
    picked = np.arange(count)[::2]
    assert all(same(expanded(found.take(picked)).ids[name], made.take(picked).ids[name]) for name in "ab")


def test_weights_count() -> None:
    one = JaggedIds(values=np.array([1, 1, 1]), lengths=np.ones(3, np.int32), weights=np.array([1, 2, 1], np.float32))
    assert distinct_rows([one])[1].tolist() == [0, 1, 0]


def test_long_bags_are_told_apart_by_any_place() -> None:
    long = np.zeros((4, 5000), np.int64)
    long[1, 4999] = long[2, 0] = 1
    made = JaggedIds(values=long.ravel(), lengths=np.full(4, 5000, np.int32))
    assert distinct_rows([made])[1].tolist() == [0, 1, 2, 0]


def test_groups_that_gain_are_chosen() -> None:
    user, other = [[i // 4, 7] for i in range(16)], [[i // 4] for i in range(16)]
    item = [[i] for i in range(16)]
    groups = dedup_groups(batch(user=user, item=item, other=other))
    assert [group.features for group in groups] == [("user", "other"), ("item",)]
    assert (groups[0].factor, groups[0].ids_before, groups[0].ids_after) == (4.0, 48, 12)
    assert [group.features for group in chosen(groups)] == [("user", "other")]
    assert chosen(groups, least=5.0) == ()
    assert (
        chosen(dedup_groups(batch(single=[[i // 4] for i in range(16)]))) == ()
    )  # the row would be as large as the id


def test_nearby_repeats_are_found_without_those_far_away() -> None:
    rows = [[1], [1], [1], [2], [2], [1]]
    found = deduplicated(batch(a=rows), [("a",)], nearby=True)
    assert found.ids["a"].values.tolist() == [1, 2, 1]
    assert found.inverse["a"].tolist() == [0, 0, 0, 1, 1, 2]


def test_sliding_histories_are_told_apart() -> None:
    rows = [[7, i // 3] for i in range(30)]  # the same first id always
    first, row = distinct_rows([bags(rows)])
    assert (first.tolist(), row.tolist()) == (list(range(0, 30, 3)), [i // 3 for i in range(30)])


def test_features_with_rows_of_their_own_may_become_a_group() -> None:
    """As transforms leave them: runs of each feature once, whatever the others do."""
    made = batch(a=[[1], [1], [2], [2]], b=[[5], [6], [6], [6]], c=[[0], [0], [0], [1]])
    once = with_runs_once(made, ("a", "b", "c"))
    assert [len(once.ids[name].lengths) for name in "abc"] == [2, 2, 2]
    found = deduplicated(once, [("a", "b")])
    assert set(found.inverse) == {"a", "b"}
    assert len(found.ids["a"].lengths) == len(found.ids["b"].lengths) == 3
    assert all(same(expanded(found).ids[name], made.ids[name]) for name in "abc")
