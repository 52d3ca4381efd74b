"""Mixes of planes are shares, close to the best there are, and bounds with any of them hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import MEDIUM
from support.cases import Case

from recsmith.bounds.linear_bounds import LinearBound, cheapest_options, plane_slopes
from recsmith.bounds.plane_mixes import plane_game, played_mix, tightest_linear_bound
from recsmith.bounds.relaxation import shared_relaxation


def _value(seconds: np.ndarray, group: np.ndarray, start: np.ndarray, mix: np.ndarray) -> float:
    return float(cheapest_options((seconds * mix[group]).sum(axis=1), start)[0].sum())


def test_a_play_ends_near_the_best_mix() -> None:
    """Solved whole: the seconds of a group are at least those of its options by each plane."""
    optimize = pytest.importorskip("scipy.optimize")
    random = np.random.default_rng(0)
    tables, options, groups, planes = 200, 6, 3, 4
    number, start = tables * options, np.arange(tables + 1) * options
    group = random.integers(0, groups, number)
    seconds = random.exponential(1.0, (number, planes)) * random.exponential(1.0, (groups, planes))[group]
    limits = np.zeros((groups * planes, number + groups))
    for each in range(groups):
        rows = slice(each * planes, (each + 1) * planes)
        limits[rows, :number] = np.where(group == each, seconds.T, 0.0)
        limits[rows, number + each] = -1.0
    one = np.hstack([np.repeat(np.eye(tables), options, axis=1), np.zeros((tables, groups))])
    cost = np.append(np.zeros(number), np.ones(groups))
    best = optimize.linprog(cost, A_ub=limits, b_ub=np.zeros(len(limits)), A_eq=one, b_eq=np.ones(tables)).fun
    mix = played_mix(seconds, group, start, groups)
    np.testing.assert_allclose(mix.sum(axis=1), 1.0)
    assert 0.98 * best <= _value(seconds, group, start, mix) <= best * (1 + 1e-9)


def test_a_table_that_fits_nowhere_ends_the_play() -> None:
    mix = played_mix(np.full((2, 3), np.inf), np.zeros(2, dtype=int), np.array([0, 1, 2]), 1)
    np.testing.assert_allclose(mix, 1 / 3)


@given(MEDIUM, st.integers(0, 10**6), st.floats(0, 1e-9), st.floats(1e-6, 1.0))
def test_mixes_of_a_problem_are_shares_and_no_worse_than_even_ones(
    case: Case, seed: int, price: float, largest: float
) -> None:
    evaluator = case.evaluator
    groups = np.random.default_rng(seed).random(evaluator.groups) < 0.8
    game = plane_game(evaluator)
    for mix in (game.mix(groups), game.mix(groups, price, largest)):
        assert np.isfinite(mix).all()
        assert (mix >= 0).all()
        np.testing.assert_allclose(mix.sum(axis=1), 1.0)
    even = np.full_like(game.mix(groups), 1 / len(plane_slopes(evaluator)))
    open_ = game.open & groups[game.group]
    seconds = np.where(open_[:, None], game.seconds, np.inf)
    played, before = (_value(seconds, game.group, game.start, mix) for mix in (game.mix(groups), even))
    assert played >= before * (1 - 1e-9) or not np.isfinite(before)


@given(MEDIUM)
def test_prices_of_another_linear_bound_are_those_made_anew(case: Case) -> None:
    evaluator = case.evaluator
    linear = tightest_linear_bound(evaluator)
    other = LinearBound(np.tile(plane_slopes(evaluator)[0], (evaluator.groups, 1)), linear.opening)
    anew, again = shared_relaxation(evaluator, other), shared_relaxation(evaluator, linear).repriced(other)
    np.testing.assert_array_equal(again.option_seconds, anew.option_seconds)
    np.testing.assert_array_equal(again.option_largest, anew.option_largest)
