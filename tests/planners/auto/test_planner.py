"""The default planner has a plan whenever it is stopped: by an interrupt, or by a limit of time."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from support.cases import Case, large_case, medium_case, seeded

from recsmith.planners import protocol
from recsmith.planners.auto import annealing_turns, drafts
from recsmith.planners.auto import planner as auto
from recsmith.planners.protocol import Budget

CASE = medium_case(seeded(0), models=("analytic",))


def test_an_interrupt_before_the_first_plan_leaves_the_quickest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    quickest = auto.COST_GREEDY.plan(CASE.problem, CASE.evaluator)
    monkeypatch.setattr(auto, "first_bound", interrupted)
    found = auto.Auto().plan(CASE.problem, CASE.evaluator)
    assert found.truncated
    assert found.total_s == quickest.total_s


def test_a_limit_of_time_begins_with_the_quickest_plan() -> None:
    heard: list[float] = []
    found = auto.Auto().plan(CASE.problem, CASE.evaluator, budget=Budget(time_limit_s=1.0), on_improve=heard.append)
    assert heard[0] == auto.COST_GREEDY.plan(CASE.problem, CASE.evaluator).total_s
    assert found.total_s == heard[-1]


def test_the_tighter_bound_is_sought_while_it_is_early(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = protocol.Search(CASE.evaluator)
    search = protocol.Search(CASE.evaluator, Budget(time_limit_s=10.0))
    for seconds, early in ((0.0, True), (2.4, True), (2.6, False)):
        monkeypatch.setattr(protocol.time, "monotonic", lambda seconds=seconds: search.started + seconds)
        assert search.is_early(0.25) is early
        assert unlimited.is_early(0.25)


def test_what_is_left_of_a_budget() -> None:
    assert Budget(iterations=3).less(5.0) == Budget(iterations=3)
    assert Budget(time_limit_s=10.0).less(4.0) == Budget(time_limit_s=6.0)
    assert 0 < (Budget(time_limit_s=1.0).less(4.0).time_limit_s or 0) < 1e-6


def test_a_brief_search_has_no_turns_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    case, asked = medium_case(seeded(5), models=("analytic",)), list[str]()
    for name in ("first_turns", "selected_turn", "gathered_turn", "last_turns"):
        monkeypatch.setattr(annealing_turns.AnnealingTurns, name, lambda _, name=name: bool(asked.append(name)))
    auto.Auto(brief=True).plan(case.problem, case.evaluator)
    auto.Auto().plan(case.problem, case.evaluator)
    assert asked == ["first_turns", "selected_turn", "gathered_turn", *asked[:3], "last_turns"]


@pytest.mark.parametrize(
    ("case", "compiled"),
    [(medium_case(seeded(2), models=("analytic",)), True), (CASE, False), (large_case(seeded(1)), True)],
    ids=["few", "not-compiled", "many"],
)
def test_more_iterations_go_on_from_what_fewer_find(
    case: Case, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a longer limit never gives a longer step, and one that lasts as long as a search without a limit gives its."""
    for module in () if compiled else (annealing_turns, drafts):
        monkeypatch.setattr(module, "is_compiled", lambda: False)
    seed = 0
    whole = auto.Auto().plan(case.problem, case.evaluator, seed=seed)
    limits = (5, whole.iterations, whole.iterations + 40)
    costs = [auto.Auto().plan(case.problem, case.evaluator, seed=seed, budget=Budget(iterations=limit)).total_s
             for limit in sorted(limits)]  # fmt: skip
    assert costs == sorted(costs, reverse=True)
    assert costs[sorted(limits).index(whole.iterations)] == whole.total_s


def test_a_handful_of_tables_far_from_the_bound_is_enumerated_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven tables that fill three devices: some must go to disk so that others can have a copy on each."""
    pytest.importorskip("ortools")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    case = import_module("optimality_cases").brute_case(288, "analytic")
    case = replace(case, cluster=case.cluster.with_memory(int(0.987 * case.cluster.hbm_bytes)))
    best = case.plan("exact").plan.cost.total_s
    assert case.plan("auto").plan.cost.total_s == pytest.approx(best, rel=1e-6)
    monkeypatch.setattr(auto, "FAR_PARTIAL", auto.MOST_PARTIAL)
    monkeypatch.setattr(annealing_turns.AnnealingTurns, "last_turns", lambda self: False)  # they would find it, too
    assert case.plan("auto").plan.cost.total_s > 1.0001 * best  # found again on any machine
