"""Annealing in the default planner: what it gains, and what is said where it was not compiled but would have helped."""

import pytest
from support.cases import Case
from support.searched import lopsided

from recsmith.planners.annealing import kernel
from recsmith.planners.auto import annealing_turns as module
from recsmith.planners.auto import planner as auto
from recsmith.planners.auto.annealing_turns import AnnealingTurns
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.planners.auto.planner import NOT_COMPILED, _Team  # pyright: ignore[reportPrivateUsage]
from recsmith.planners.search.device_state import DeviceState


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_compiled", lambda: False)


def said(case: Case) -> bool:
    return NOT_COMPILED in case.plan().left_out


def test_a_package_without_compiled_code_says_so(without_compiler: None) -> None:
    assert said(lopsided())


def test_a_package_with_compiled_code_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_compiled", lambda: True)
    monkeypatch.setattr(AnnealingTurns, "halving", None)
    assert not said(lopsided())


def test_nothing_is_said_of_a_cost_model_that_it_would_not_know(
    without_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceState, "compiled_loads", None)
    assert not said(lopsided())


def test_nothing_is_said_of_a_plan_that_is_near_the_bound(
    without_compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoppingRule, "near_bound", lambda stopping, total_s: True)
    assert not said(lopsided())


@pytest.mark.parametrize("compiled", sorted({kernel.is_compiled(), False}))
def test_annealing_gains_on_the_drafts(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_compiled", lambda: compiled)
    monkeypatch.setattr(_Team, "_improve", lambda team: False)
    monkeypatch.setattr(auto, "is_installed", lambda: False)
    found = lopsided().plan()
    assert "annealing" in found.members
    monkeypatch.setattr(AnnealingTurns, "halving", None)
    monkeypatch.setattr(AnnealingTurns, "turn", lambda turns: False)
    drafted = lopsided().plan()
    assert "annealing" not in drafted.members
    assert found.plan.cost.total_s < drafted.plan.cost.total_s
