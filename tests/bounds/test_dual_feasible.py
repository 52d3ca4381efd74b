"""Dual feasible functions: whatever shares fill a rank, their values add up to at most one rank."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recsmith.bounds.dual_feasible import FUNCTIONS, SHRUNK, dual_feasible

PARTS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function[0]:.0f}-{function[1]:g}")
@given(PARTS)
@example([1, 1])  # halves, thirds and so on: where a step lies
@example([1, 1, 1])
@example([1] * 9)
@example([21, 39])
def test_values_of_shares_that_fill_a_rank_fill_at_most_one(function, parts: list[int]) -> None:
    shares = np.array(parts) / sum(parts) * SHRUNK
    assert dual_feasible(function, shares).sum() <= 1 + 1e-12
    assert (dual_feasible(function, shares) >= 0).all()


def test_three_pieces_of_more_than_a_third_cost_one_and_a_half_ranks() -> None:
    counts = next(each for each in FUNCTIONS if tuple(each) == (2.0, 2.0))
    np.testing.assert_array_equal(dual_feasible(counts, np.array([0.34, 0.34, 0.34])), 0.5)


def test_a_piece_that_leaves_no_room_costs_all_of_a_rank() -> None:
    cutoff = next(each for each in FUNCTIONS if tuple(each) == (0.0, 0.2))
    np.testing.assert_array_equal(dual_feasible(cutoff, np.array([0.85, 0.5, 0.1])), [1.0, 0.5, 0.0])
