"""Tables that nothing but their names tells apart."""

import numpy as np

from recsmith.bounds.equal_tables import different_tables


def test_tables_with_the_same_facts_in_the_same_order_are_one() -> None:
    """Tables 0 and 2 are alike; 1 differs in one number, 3 in the order, 4 has one fact less, and 5 has none."""
    table = np.array([2, 0, 1, 3, 0, 1, 2, 3, 4])
    numbers = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.5, 2.0, 1.0, 1.0])
    first, copies = different_tables(6, [(table, numbers[:, None])])
    assert first.tolist() == [0, 1, 3, 4, 5]
    assert copies.tolist() == [2, 1, 1, 1, 1]


def test_each_kind_of_facts_counts_by_itself() -> None:
    """What one table has of the first kind, the other has of the second."""
    one, other = np.array([0]), np.array([1])
    first, copies = different_tables(2, [(one, np.ones((1, 1))), (other, np.ones((1, 1)))])
    assert first.tolist() == [0, 1]
    assert copies.tolist() == [1, 1]
