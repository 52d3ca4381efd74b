"""Rows that are carried over to another map: means of what their ids had."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsmith.embeddings import IdMap
from recsmith.embeddings.id_maps import carried_rows

IDS = 12


def a_map(numbers: list[int]) -> IdMap:
    return IdMap(numbers=np.array(numbers, np.int32))


MAPS = st.lists(st.integers(0, 4), min_size=IDS, max_size=IDS)
COUNTS = st.lists(st.integers(0, 10**6), min_size=IDS, max_size=IDS)


@given(before=MAPS, after=MAPS, counts=COUNTS, seed=st.integers(0, 99))
def test_rows_are_the_means_of_their_ids(before: list[int], after: list[int], counts: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32).astype(np.float64)
    made = carried_rows(values, a_map(before), a_map(after), np.array(counts), 5)
    for row in range(5):
        ids = [i for i in range(IDS) if after[i] == row]
        weights = [counts[i] + 1 for i in ids]
        expected = np.average([values[before[i]] for i in ids], axis=0, weights=weights) if ids else np.zeros(3)
        np.testing.assert_allclose(made[row], expected, rtol=1e-12, atol=1e-15)


@given(before=MAPS, counts=COUNTS)
def test_nothing_changes_where_ids_share_as_before(before: list[int], counts: list[int]) -> None:
    values = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32).astype(np.float64)
    moved = [(number + 1) % 5 for number in before]  # the same ids together, in other rows
    made = carried_rows(values, a_map(before), a_map(moved), np.array(counts), 5).astype(np.float32)
    for row in set(before):
        assert (made[(row + 1) % 5] == values[row].astype(np.float32)).all()
