"""When planner auto stops: at the bound, earlier for large problems, later with a budget."""

import pytest
from support.cases import Case, cluster, table, workload

from recsmith.planners.auto.stopping import LARGE, VAST, StoppingRule
from recsmith.planners.protocol import Budget, Search

EVALUATOR = Case(workload(table("a", 10, 4)), cluster(1)).evaluator


def rule(total_s: float, size: int = 10, budget: Budget | None = None) -> StoppingRule:
    search = Search(EVALUATOR, budget, None, None)
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
    search = Search(EVALUATOR, None, None, None)
    search.iterations, search.total_s = 1, 1e-9
    assert not StoppingRule(search, 0.0, 10).reached
