"""The cheapest split of columns against every split."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.bounds import column_splits
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


@given(COSTS)
def test_very_wide_tables_get_a_bound_below_the_cheapest_split(cost) -> None:
    """With the limit lowered, so that a few steps are many: never above, equal where one width alone is cheapest."""
    costs, size = np.array([cost]), np.arange(1.0, len(cost) + 1)[None]
    exact = least_cost(costs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_splits, "MOST_STEPS", 0)
        bound, (again, weight) = least_cost(costs), least_cost_and_bytes(costs, size)
        even = least_cost(np.full_like(costs, 3.0) * size)
    assert bound.tolist() == again.tolist()
    assert bound[0] <= exact[0] * (1 + 1e-12)
    assert weight.tolist() == pytest.approx([len(cost)])  # as many bytes as steps, whatever the width
    assert even.tolist() == pytest.approx([3.0 * len(cost)])
