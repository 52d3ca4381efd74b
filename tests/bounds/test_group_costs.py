"""What groups in use cost, by hand, and that the added seconds are what is added."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import ANALYTIC, ONE_DOZEN
from support.cases import Case

from recsmith.bounds.group_costs import GroupCosts
from recsmith.sharding import Span

OPENING = 1e-5


@ONE_DOZEN
@given(ANALYTIC, st.integers(0, 10**6))
def test_a_group_adds_what_it_says(case: Case, seed: int) -> None:
    costs, groups = GroupCosts(case.evaluator, OPENING), case.evaluator.groups
    paid = np.random.default_rng(seed).random(groups) < 0.5
    added = costs.added(paid)
    for group in np.flatnonzero(~paid).tolist():
        more = paid.copy()
        more[group] = True
        np.testing.assert_allclose(costs.certain(more) - costs.certain(paid), added[group], rtol=1e-9, atol=1e-18)


@ONE_DOZEN
@given(ANALYTIC)
def test_each_group_of_the_world_opens_and_all_others_open_once(case: Case) -> None:
    evaluator, modes = case.evaluator, case.problem.modes
    world = {int(evaluator.group[m]) for m in np.flatnonzero(modes.span == Span.WORLD)}
    everything = np.ones(evaluator.groups, dtype=bool)
    openings = len(world) + (len(world) < evaluator.groups)
    found = GroupCosts(evaluator, OPENING).certain(everything) - GroupCosts(evaluator, 0.0).certain(everything)
    np.testing.assert_allclose(found, openings * OPENING, rtol=1e-9)
    assert GroupCosts(evaluator, OPENING).certain(~everything) == 0
