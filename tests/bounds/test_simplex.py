"""A small linear programme: its end is proved by its duals."""

import numpy as np
import pytest

from recsmith.bounds.simplex import Simplex

HIGH = 1e4


@pytest.mark.parametrize("seed", range(12))
def test_no_solution_costs_less_by_the_duals(seed: int) -> None:
    """What the basis costs is what the duals say of the right side, and by the duals no column is worth more."""
    random = np.random.default_rng(seed)
    rows, right = random.uniform(0, 1, (6, 25)), random.uniform(1, 2, 6)
    rows[:3, ::2] = 0
    cost, own_cost = random.uniform(-0.5, 1, 25), np.array([0.0, 0.0, 0.0, HIGH, HIGH, HIGH])
    simplex = Simplex(right, own_cost)
    simplex.solve(rows, cost, 500)
    every, costs = np.hstack([rows, np.eye(6)]), np.concatenate([cost, own_cost])
    held = np.zeros(31)
    own = np.flatnonzero(simplex.basis < 0)
    held[simplex.basis[simplex.basis >= 0]] = simplex.values[simplex.basis >= 0]
    slack = right - every @ held
    assert (slack[3:] < 1e-7).all() or len(own)
    held[25:] = slack
    assert (held > -1e-9).all()
    assert costs @ held == pytest.approx(simplex.duals @ right, rel=1e-7)
    assert (costs - simplex.duals @ every > -1e-7).all()
    assert (simplex.duals[:3] < 1e-9).all()


def test_it_ends_where_nothing_limits_a_column() -> None:
    simplex = Simplex(np.ones(1), np.zeros(1))
    simplex.solve(np.array([[-1.0]]), np.array([-1.0]), 10)
    assert simplex.pivots == 0
