"""Annealing in planner auto: a stand-in helps learned models, and the bound does not wait for its turn."""

import pytest
from support.cases import Case, check_plan

from recsmith.clusters import load_cluster
from recsmith.costs import HasStandIn
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.auto import annealing_turns
from recsmith.workloads.sample import sample_workload

needs_compiled = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")


def learned() -> Case:
    return Case(sample_workload(12, seed=3), load_cluster("h100:4"), cost_model="neural:simulated-h100")


@needs_compiled
def test_a_learned_model_is_searched_by_its_stand_in_first(monkeypatch: pytest.MonkeyPatch) -> None:
    case = learned()
    assert isinstance(case.evaluator, HasStandIn)
    assert case.evaluator.stand_in.problem is case.problem
    found = case.plan()
    check_plan(case, found.plan)
    monkeypatch.setattr(annealing_turns, "is_compiled", lambda: False)
    assert found.plan.cost.total_s <= learned().plan().plan.cost.total_s * 1.005


@needs_compiled
def test_an_error_in_the_bound_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evaluator: object, keep_on: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(annealing_turns, "lower_bound", broken)
    with pytest.raises(ZeroDivisionError):
        Case(sample_workload(12, seed=3), load_cluster("h100:4"), cost_model="analytic").plan()
