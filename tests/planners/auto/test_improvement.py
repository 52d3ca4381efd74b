"""When planner auto stops: at the bound, earlier for large problems, later with a budget.

Local search in planner auto ends with its effort, with the budget, or when it finds no more.
"""

import pytest
from support.cases import Case, cluster, table, workload
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.auto import improvement as module
from recsmith.planners.auto.improvement import LARGE, VAST, Improvement, StoppingRule
from recsmith.planners.protocol import Budget, Search
from recsmith.planners.search.device_state import DeviceState

EVALUATOR = Case(workload(table("a", 10, 4)), cluster(1)).evaluator


def rule(total_s: float, size: int = 10, budget: Budget | None = None) -> StoppingRule:
    search = Search(EVALUATOR, budget)
    search.iterations, search.total_s = 1, total_s
    return StoppingRule(search, 1.0, size)


@pytest.mark.parametrize(
    ("total_s", "size", "reached"),
    [
        (1.0, 10, True), (1.000009, 10, True), (1.00002, 10, False), (1.0009, LARGE, False), (1.0009, LARGE + 1, True),
        (1.0011, LARGE + 1, False), (1.0029, VAST + 1, True), (1.0031, VAST + 1, False),
    ],
)  # fmt: skip
def test_the_gap_at_which_it_stops(total_s: float, size: int, reached: bool) -> None:
    assert rule(total_s, size).reached == reached


def test_a_budget_is_spent_on_large_problems_too() -> None:
    stopping = rule(1.0009, VAST + 1, Budget(iterations=5))
    assert stopping.has_budget
    assert not stopping.reached
    stopping.search.iterations = 5
    assert stopping.reached
    assert not rule(1.0).has_budget


def test_near_the_bound_only_quick_changes_are_tried() -> None:
    assert rule(2.0).near_bound(1.0009)
    assert not rule(2.0).near_bound(1.0011)
    assert (rule(2.0, LARGE).is_large, rule(2.0, LARGE + 1).is_large) == (False, True)


def test_without_a_bound_only_a_budget_stops() -> None:
    search = Search(EVALUATOR)
    search.iterations, search.total_s = 1, 1e-9
    assert not StoppingRule(search, 0.0, 10).reached


def improved(case: Case, *, limited: bool, budget: Budget | None = None, bound_s: float = 0.0) -> Improvement:
    search, devices = Search(case.evaluator, budget), DeviceState(case.evaluator)
    made = Improvement(search, StoppingRule(search, bound_s, 10), devices)
    made.run([heap(case)], shared_relaxation(case.evaluator), limited=limited)
    return made


def test_what_it_finds_is_counted_and_priced() -> None:
    case = lopsided()
    search = improved(case, limited=True).search
    start = step_seconds(case.evaluator, heap(case).footprint(case.problem))
    assert search.best is not None
    assert search.total_s == step_seconds(case.evaluator, search.best) < 0.4 * start


def test_the_effort_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    long = improved(lopsided(), limited=True).devices.effort
    for name in ("LEAST_EFFORT", "SMALL_EFFORT", "LARGE_EFFORT"):
        monkeypatch.setattr(module, name, 0)
    assert 0 < improved(lopsided(), limited=True).devices.effort < long / 2


def test_a_budget_of_iterations_is_spent_and_kept() -> None:
    search = improved(lopsided(), limited=False, budget=Budget(iterations=12)).search
    assert search.iterations == 12


def test_near_the_bound_it_takes_no_tables_out() -> None:
    """With a bound above every plan nothing is left to do."""
    made = improved(lopsided(), limited=True, bound_s=1.0)
    assert made.devices.effort == 0
