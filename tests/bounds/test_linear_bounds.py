"""Linear bounds lie below the cost of every group, and price pieces as they say."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import MEDIUM, TINY
from support.cases import Case

from recsmith.bounds.linear_bounds import LinearBound, mean_linear_bound
from recsmith.bounds.plane_mixes import tightest_linear_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.costs import Evaluator


def _linear_bounds(evaluator: Evaluator) -> list[LinearBound]:
    """Every plane for all groups, and the mixes that bounds and searches use."""
    planes = [
        LinearBound(np.tile(plane.slopes.sum(axis=0), (evaluator.groups, 1)), plane.opening)
        for plane in evaluator.planes
    ]
    return [*planes, mean_linear_bound(evaluator), tightest_linear_bound(evaluator)]


@given(MEDIUM, st.integers(0, 10**6))
def test_linear_bounds_lie_below_the_head(case: Case, seed: int) -> None:
    """At sums of pieces that a rank may hold of a group, for every group."""
    evaluator, problem = case.evaluator, case.problem
    rng = np.random.default_rng(seed)
    terms, groups = evaluator.terms(problem.pieces.mode, problem.pieces.width), evaluator.group[problem.pieces.mode]
    bounds = _linear_bounds(evaluator)
    for group in np.unique(groups).tolist():
        pieces = terms[groups == group]
        held = rng.integers(0, 3, (10, len(pieces))) * (rng.random((10, len(pieces))) < rng.random((10, 1)))
        seconds = evaluator.head(held @ pieces).sum(axis=-1)
        for bound in bounds:
            below = held @ pieces @ bound.slopes[group] + np.where(held.any(axis=1), bound.opening, 0.0)
            assert (below <= seconds * (1 + 1e-12) + 1e-18).all()
    assert all(bound.opening >= 0 for bound in bounds)


@given(TINY)
def test_a_piece_alone_costs_its_head_less_the_opening(case: Case) -> None:
    relaxation, problem = Relaxation(case.evaluator), case.problem
    head = case.evaluator.head(case.evaluator.terms(problem.pieces.mode, problem.pieces.width)).sum(axis=-1)
    np.testing.assert_allclose(relaxation.piece_alone + relaxation.linear.opening, head, rtol=1e-12)
    assert (relaxation.piece_seconds <= relaxation.piece_alone * (1 + 1e-9) + 1e-18).all()
