"""Nodes side by side, and the least of a product over a range."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsmith.bounds.multipliers import Multipliers, PhaseRanges, least_product, stacked

ENDS = st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted)


@given(st.floats(-5, 5), ENDS, st.floats(0, 1))
def test_the_least_product_is_below_every_product(factor: float, ends: list[float], part: float) -> None:
    found = float(least_product(np.array([factor]), np.array([ends]))[0])
    assert found in (factor * ends[0], factor * ends[1])
    assert found <= factor * ((1 - part) * ends[0] + part * ends[1]) + 1e-9


def test_nodes_side_by_side_keep_their_order() -> None:
    mixes = np.full((3, 2), 0.5), np.array([[1.0, 0.0]] * 3)
    ranges = [PhaseRanges((0.0, 1.0), (0.0, 2.0)), PhaseRanges((0.5, 1.0), (1.0, 2.0))]
    nodes = stacked(ranges, [Multipliers(1.0, 2.0, 0.0, mixes[0], 0), Multipliers(3.0, 4.0, 5.0, mixes[1], 1)])
    assert nodes.ready.tolist() == [[0, 1], [0.5, 1]]
    assert nodes.rest.tolist() == [[0, 2], [1, 2]]
    assert (nodes.ready_multiplier.tolist(), nodes.rest_multiplier.tolist()) == ([1, 3], [2, 4])
    assert (nodes.byte_price.tolist(), nodes.plane.tolist()) == ([0, 5], [0, 1])
    assert nodes.mix.shape == (2, 3, 2)
