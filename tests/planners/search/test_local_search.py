"""Local search goes down, from any start, and says when it finds no more.

Tables placed again, one by itself or several together.

Which options local search tries.
"""

from copy import copy

import numpy as np
import pytest
from support.searched import begun, heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.local_search import (
    COPIES,
    FEW_PIECES,
    MOST_OPTIONS,
    SHARPNESS,
    LocalSearch,
    replace_several,
    replace_table,
)
from recsmith.problems import fits


def local_search(seed: int = 0) -> LocalSearch:
    case = lopsided()
    return LocalSearch(DeviceState(case.evaluator), shared_relaxation(case.evaluator), heap(case), seed)


def test_rounds_lead_from_one_device_to_near_the_bound() -> None:
    case, local = lopsided(), local_search()
    start, rounds = local.total, 0
    for sharpness in SHARPNESS:
        local.sharpness = sharpness
        while local.round(several=False):
            rounds += 1
    footprint = local.assignment().footprint(case.problem)
    assert rounds > 3
    assert local.total == pytest.approx(step_seconds(case.evaluator, footprint), rel=1e-9)
    assert fits(case.problem, footprint)
    bound = case.plan("cost_greedy").plan.bound.value_s
    assert bound is not None
    assert local.total < 1.1 * bound < 0.4 * start
    assert not local.round(several=False)


def test_one_seed_gives_one_plan() -> None:
    one, other = local_search(3), local_search(3)
    for _ in range(12):
        assert one.round(several=True) == other.round(several=True)
    assert one.assignment().target.tolist() == other.assignment().target.tolist()


def test_effort_counts_what_is_tried() -> None:
    local = local_search()
    while local.round(several=False):
        pass
    before = local.devices.effort
    local.round(several=True)
    assert local.devices.effort > before


def test_one_table_is_placed_again_where_the_score_falls_most() -> None:
    plan, options = begun(lopsided())
    assert replace_table(plan, options, 0)
    assert plan.score_now() < plan.goal(0)
    made, before = plan.copies.assignment(0), heap(lopsided())
    assert made.complete
    moved = [t for t in range(12) if (made.target[made.table == t] != 0).any()]
    assert len(moved) == 1
    assert (made.option != before.option).sum() <= 1


def test_a_rank_without_tables_has_nothing_to_place_again() -> None:
    plan, options = begun(lopsided(("table_wise",)))
    plan.copies.free[0, 1:] = 0
    assert not replace_table(plan, options, 0)
    assert (plan.copies.assignment(0).target == 0).all()


def test_the_best_copy_is_complete_and_costs_what_it_says() -> None:
    case = lopsided()
    plan, options = begun(case)
    better = replace_several(plan, options, [0], np.random.default_rng(0))
    assert better is not None
    made = better.assignment(0)
    assert made.complete
    assert len(plan.copies.option) == 1 < COPIES
    assert float(better.totals()[0]) == pytest.approx(step_seconds(case.evaluator, made.footprint(case.problem)))
    assert float(better.totals()[0]) < float(plan.copies.totals()[0])


def test_without_room_elsewhere_no_copy_is_better() -> None:
    plan, options = begun(lopsided(("table_wise",)))
    plan.copies.free[0, 1:] = 0
    assert replace_several(plan, options, [0], np.random.default_rng(0)) is None


def test_the_cheapest_options_come_first_and_are_few() -> None:
    plan, options = begun(lopsided())
    relaxation = options.relaxation
    for table in range(len(plan.devices.problem.tables)):
        found = options.cheapest(table)
        assert 0 < len(found) <= MOST_OPTIONS
        assert (plan.devices.problem.options.table[found] == table).all()
        assert (plan.devices.problem.options.count[found].sum(axis=1) <= FEW_PIECES).all()
        assert (np.diff(relaxation.option_seconds[found]) >= 0).all()
        assert relaxation.option_fits[found].all()


def test_options_that_are_slower_than_the_slowest_ranks_are_not_tried() -> None:
    plan, options = begun(lopsided())
    most = float(plan.objective.reference.sum())
    for table in range(len(plan.devices.problem.tables)):
        found = options.below_slowest(plan, table)
        assert (options.relaxation.option_largest[found] < most).all()
    options.relaxation = copy(options.relaxation)
    options.relaxation.option_largest = np.full_like(options.relaxation.option_largest, most)
    assert options.below_slowest(plan, 0).size == 0
