"""The cheapest split of columns against every split."""

import math
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsmith.bounds.column_splits import least_cost, least_cost_and_bytes

COSTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.0, math.inf]), min_size=1, max_size=9)


@given(COSTS)
def test_the_cheapest_split_is_the_least_of_all(cost) -> None:
    steps = len(cost)

    @cache
    def least(left: int) -> float:
        return min((cost[size - 1] + least(left - size) for size in range(1, left + 1)), default=0.0)

    size = np.arange(1.0, steps + 1) ** 2
    found, weight = least_cost_and_bytes(np.array([cost]), size[None])
    assert found.tolist() == [least(steps)]
    assert least_cost(np.array([[cost, cost[::-1]]])).shape == (1, 2)
    assert least_cost(np.array([[cost[::-1], cost]]))[0, 1] == least(steps)
    if math.isfinite(least(steps)):
        assert (least(steps), weight[0]) in _all_splits(tuple(cost), tuple(size))


def _all_splits(cost: tuple[float, ...], size: tuple[float, ...]) -> set[tuple[float, float]]:
    """(cost, bytes) of every split of all steps."""
    found = [{(0.0, 0.0)}]
    for filled in range(1, len(cost) + 1):
        found.append({(a + cost[n - 1], b + size[n - 1]) for n in range(1, filled + 1) for a, b in found[filled - n]})
    return found[-1]
