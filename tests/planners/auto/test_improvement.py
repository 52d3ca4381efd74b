"""Local search in planner auto ends with its effort, with the budget, or when it finds no more."""

import pytest
from support.cases import Case
from support.searched import heap, lopsided

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import step_seconds
from recsmith.planners.auto import improvement as module
from recsmith.planners.auto.improvement import Improvement
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.protocol import Budget, Search
from recsmith.planners.search.device_state import DeviceState


def improved(case: Case, *, limited: bool, budget: Budget | None = None, bound_s: float = 0.0) -> Improvement:
    search, devices = Search(case.evaluator, budget, None, None), DeviceState(case.evaluator)
    made = Improvement(search, StoppingRule(search, bound_s, 10), devices, seed=0)
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
