"""Plans side by side: what a change is said to make of them, and which of them it changes."""

import numpy as np
import pytest
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.annealing.options import AnnealingOptions
from recsmith.planners.annealing.population import Population
from recsmith.planners.annealing.random_changes import RandomChanges
from recsmith.planners.search.device_state import DeviceState


def population(plans: int = 4) -> tuple[Population, RandomChanges]:
    case = lopsided()
    devices = DeviceState(case.evaluator)
    options = AnnealingOptions(devices, shared_relaxation(case.evaluator))
    made = Population(devices, options, [heap(case)], plans)
    return made, RandomChanges(made, options, np.random.default_rng(0))


def step(of: Population, plan: int) -> float:
    made = of.assignment(of.option[plan], of.target[plan])
    return step_seconds(of.devices.evaluator, made.footprint(of.devices.problem))


def test_only_the_plans_that_take_a_change_change_and_as_was_said() -> None:
    plans, changes = population()
    before = plans.total.copy()
    for kind in (changes.move_piece, changes.swap_pieces, changes.replace_table):
        change = kind()
        change.legal[:] = True
        effect = plans.try_(change)
        plans.take(np.array([2]), change, effect)
        assert plans.total[2] == effect.total[2]
        assert plans.total[2] == pytest.approx(step(plans, 2), rel=1e-9)
        assert (plans.total[[0, 1, 3]] == before[[0, 1, 3]]).all()
        assert (plans.target[[0, 1, 3]] <= 0).all()


def test_copies_are_equal_and_apart() -> None:
    plans, changes = population()
    change = changes.move_piece()
    plans.take(np.flatnonzero(change.legal), change, plans.try_(change))
    plans.copy(np.array([0]), np.array([1]))
    assert plans.total[0] == plans.total[1]
    assert (plans.target[0] == plans.target[1]).all()
    plans.target[0] = -1
    assert (plans.target[1] >= 0).any()


def test_the_score_is_sharper_the_nearer_it_is_to_the_step() -> None:
    plans, _ = population()
    for sharpness in (24.0, 384.0):
        plans.sharpness = sharpness
        plans.refresh()
        assert (plans.score >= plans.total * (1 - 1e-12)).all()
    assert plans.score == pytest.approx(plans.total, rel=1e-2)


def test_memory_is_asked() -> None:
    plans, changes = population()
    plans.free[:] = 0
    change = changes.move_piece()
    moves = np.array([0]) if change.legal[0] else np.flatnonzero(change.legal)[:1]
    assert not plans.try_(change).fits[moves].any()
