"""Differencing: the textbook example, its laws, and where it gives up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recsmith.errors import UsageError
from recsmith.planners import ldm
from recsmith.planners.ldm import partition
from recsmith.planning import plan


def sums(weights: np.ndarray, target: np.ndarray, ranks: int) -> list[float]:
    return sorted(np.bincount(target, weights, ranks).tolist())


def test_the_example_of_karmarkar_and_karp():
    """8, 7, 6, 5, 4 on two ranks: differencing ends at a difference of 2, 14 beside 16."""
    weights = np.array([8.0, 7.0, 6.0, 5.0, 4.0])
    assert sums(weights, partition(weights, 2), 2) == [14.0, 16.0]


def test_better_than_longest_first_where_that_goes_wrong():
    weights = np.array([7.0, 7.0, 6.0, 6.0, 5.0, 5.0, 4.0, 4.0])
    assert sums(weights, partition(weights, 4), 4) == [11.0] * 4


@given(
    arrays(np.float64, st.integers(0, 40), elements=st.floats(0, 1e3)),
    st.integers(1, 9),
)
def test_every_weight_gets_one_rank_and_no_sum_is_absurd(weights: np.ndarray, ranks: int):
    target = partition(weights, ranks)
    assert target.shape == weights.shape
    assert ((target >= 0) & (target < ranks)).all()
    largest = weights.max(initial=0.0)
    assert max(sums(weights, target, ranks)) <= weights.sum() / ranks + largest + 1e-6


def test_a_problem_too_large_for_it_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ldm, "MOST_SIZE", 100)
    with pytest.raises(UsageError, match="208 entries here, more than its 100; use planner auto"):
        plan("dlrm-v2", "h100:8", planner="ldm")
