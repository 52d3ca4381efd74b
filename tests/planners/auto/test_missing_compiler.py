"""What the default planner says where the compiled annealing was not built: only where it would have helped."""

import pytest
from support.cases import Case
from support.searched import lopsided

from recsmith.planners.auto import annealing_turns as module
from recsmith.planners.auto.annealing_turns import AnnealingTurns
from recsmith.planners.auto.planner import NOT_COMPILED
from recsmith.planners.auto.stopping import StoppingRule


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_compiled", lambda: False)


def said(case: Case) -> bool:
    return NOT_COMPILED in case.plan().left_out


def test_a_package_without_compiled_code_says_so(without_compiler: None) -> None:
    assert said(lopsided())


def test_a_package_with_compiled_code_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_compiled", lambda: True)
    monkeypatch.setattr(AnnealingTurns, "tournament", None)
    assert not said(lopsided())


def test_nothing_is_said_of_a_cost_model_that_has_no_linear_pieces(
    without_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "linear_pieces_of", lambda evaluator, terms: None)
    assert not said(lopsided())


def test_nothing_is_said_of_a_plan_that_is_near_the_bound(
    without_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoppingRule, "near_bound", lambda stopping, total_s: True)
    assert not said(lopsided())
