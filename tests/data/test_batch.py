"""Batches: taking samples from them and putting them together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsmith.data import DataFeature, DataSchema, JaggedIds
from recsmith.data.batch import concatenated

bags_of = st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=12)


def jagged(bags: list[list[int]], *, weighted: bool = False) -> JaggedIds:
    values = np.array([each for bag in bags for each in bag], np.int64)
    weights = (values / 2).astype(np.float32) if weighted else None
    return JaggedIds(values=values, lengths=np.array([len(bag) for bag in bags], np.int32), weights=weights)


def lists(ids: JaggedIds) -> list[list[int]]:
    return [each.tolist() for each in np.split(ids.values, np.cumsum(ids.lengths)[:-1])]


@given(bags_of, st.data())
def test_taking_bags_is_taking_items_of_a_list(bags: list[list[int]], data: st.DataObject):
    rows = data.draw(st.lists(st.integers(0, len(bags) - 1), min_size=1))
    taken = jagged(bags, weighted=True).take(np.array(rows))
    assert lists(taken) == [bags[row] for row in rows]
    assert taken.weights is not None
    assert taken.weights.tolist() == [each / 2 for row in rows for each in bags[row]]


def test_batches_are_put_together_in_order_and_an_empty_one_adds_nothing():
    schema = DataSchema(features=(DataFeature(name="a", weighted=True),), dense=("x",), labels=("y",))
    empty = schema.empty()
    assert len(empty) == 0
    assert concatenated([empty, empty]).dense.shape == (0, 1)
    assert repr(empty) == "<Batch of 0 samples: 1 dense values, 1 features>"
