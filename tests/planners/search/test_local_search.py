"""Local search goes down, from any start, and says when it finds no more."""

import pytest
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.local_search import SHARPNESS, LocalSearch
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
