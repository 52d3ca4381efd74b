"""Least squares with weights of 0 or more: weights that are there are found, and none can be moved for the better."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.learning.least_squares import non_negative_fit


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_a_non_negative_fit_finds_weights_that_are_there(seed: int) -> None:
    draw = np.random.default_rng(seed)
    figures, weights = draw.uniform(0, 1, (30, 4)), np.maximum(draw.normal(size=4), 0)
    assert non_negative_fit(figures, figures @ weights) == pytest.approx(weights, abs=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_no_weight_of_a_fit_can_be_moved_for_the_better(seed: int) -> None:
    """Where a weight is 0 the error rises with it; elsewhere it does not change."""
    draw = np.random.default_rng(seed)
    figures, target = draw.uniform(0, 1, (20, 3)), draw.normal(size=20)
    weights = non_negative_fit(figures, target)
    slope = figures.T @ (figures @ weights - target)
    assert (weights >= 0).all()
    assert (slope >= -1e-5).all()
    assert slope[weights > 0] == pytest.approx(0, abs=1e-5)
