"""Annealing in planner auto: learned models are compiled too, and the bound does not wait for its turn."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.cases import Case

from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.planners import Budget, Solution
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.auto import annealing_turns
from recsmith.planning import PLANNERS
from recsmith.plans import check_placements
from recsmith.problems import build_problem, fits, placements_of
from recsmith.workloads.sample import sample_workload

needs_compiled = pytest.mark.skipif(not is_compiled(), reason="built without a C compiler")


def learned() -> Evaluator:
    problem = build_problem(sample_workload(12, seed=3), load_cluster("h100:4"))
    return cost_model("neural:simulated-h100").compile(problem)


def planned(evaluator: Evaluator) -> Solution:
    return PLANNERS["auto"].plan(evaluator.problem, evaluator)


@needs_compiled
@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_learned_model_is_annealed_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = learned()
    found = planned(evaluator)
    assert "local_search" not in found.members
    check_placements(
        placements_of(evaluator.problem, found.footprint), evaluator.problem.workload, load_cluster("h100:4")
    )
    assert fits(evaluator.problem, found.footprint)
    assert found.total_s == pytest.approx(step_seconds(evaluator, found.footprint))
    monkeypatch.setattr(annealing_turns, "is_compiled", lambda: False)
    without = planned(learned())
    assert "local_search" in without.members
    assert found.total_s <= without.total_s * 1.005


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_budget_is_spent_under_a_learned_model_too() -> None:
    evaluator = learned()  # neighbourhoods need a model of linear pieces, so they must not take what is left
    longer = PLANNERS["auto"].plan(evaluator.problem, evaluator, budget=Budget(iterations=180))
    assert longer.iterations == 180  # without a budget it takes 130
    assert "neighbourhoods" not in longer.members


@pytest.mark.parametrize(
    ("seconds", "rounds", "joins"), [(0.99, 2, [True]), (1.001, 3, [False, True]), (1.01, 2, [False])]
)
def test_of_two_searches_that_are_far_apart_one_has_the_long_rounds(
    seconds: float, rounds: int, joins: list[bool]
) -> None:
    taken, plan = list[int](), SimpleNamespace(seconds=seconds)
    other = SimpleNamespace(plans=[plan], in_rounds=lambda *_: map(taken.append, range(4)))
    turns: Any = object.__new__(annealing_turns.AnnealingTurns)
    vars(turns).update(
        halving=SimpleNamespace(plans=[SimpleNamespace(seconds=1.0)]),
        search=SimpleNamespace(total_s=min(1.0, seconds)),
        _await_bound=lambda: None,
        _keep_on=lambda: True,
        _selected=lambda: other,
    )
    assert [list(each) for each in turns._selected_rivals()] == [[plan] * each for each in joins]
    assert taken == list(range(rounds))


@needs_compiled
def test_an_error_in_the_bound_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evaluator: object, keep_on: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(annealing_turns, "lower_bound", broken)
    with pytest.raises(ZeroDivisionError):
        Case(sample_workload(12, seed=3), load_cluster("h100:4"), cost_model="analytic").plan()


@pytest.mark.parametrize("selects", [True, False])
def test_annealing_waits_for_no_bound_that_selects_nothing(selects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[object]()
    turns: Any = object.__new__(annealing_turns.AnnealingTurns)
    vars(turns).update(
        halving=SimpleNamespace(is_crowded=True, run=lambda hear, keep_on, rivals: given.append(rivals)),
        devices=SimpleNamespace(problem=None, legality=SimpleNamespace(groups=())), turns=0,
        _selected_rivals=lambda: "rivals",
    )  # fmt: skip
    monkeypatch.setattr(annealing_turns, "has_selections", lambda problem: selects)
    assert turns.turn()
    assert given == ["rivals" if selects else ()]
