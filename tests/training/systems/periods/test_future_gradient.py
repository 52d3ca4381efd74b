"""Weights of the last periods' losses: fitted as they should be, kept in checkpoints, and what is wrong is refused."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from recsmith.errors import CorruptFile, UsageError
from recsmith.training.systems.periods.updates import future_gradient, update_of
from recsmith.training.systems.periods.updates.future_gradient import FutureGradient, ridge_weights


@given(some.integers(2, 5), some.integers(0, 2**31))
def test_weights_make_the_ridge_least(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    gradients = draw.normal(size=(count + 1, 12))
    dots, ridge = gradients @ gradients.T, 0.1
    products, targets = dots[1:, 1:], dots[1:, 0]
    found = np.array(ridge_weights(products, targets, ridge))

    def objective(weights: Any) -> float:
        apart = weights - np.eye(1, count)[0]
        damping = ridge * np.trace(products) / count
        return float(weights @ products @ weights - 2 * weights @ targets + damping * apart @ apart)

    for _ in range(5):
        assert objective(found) <= objective(found + 0.1 * draw.normal(size=count)) + 1e-9


def test_a_straight_line_is_forecast_and_a_strong_ridge_is_incremental() -> None:
    draw = np.random.default_rng(0)
    start, slope = draw.normal(size=(2, 50))
    gradients = np.stack([start + slope * (4 - back) for back in range(4)])  # newest first
    dots = gradients @ gradients.T
    weights = np.array(ridge_weights(dots[1:, 1:], dots[1:, 0], 1e-9))
    np.testing.assert_allclose(weights @ gradients[1:], gradients[0], rtol=1e-4)
    np.testing.assert_allclose(weights @ gradients[:3], start + slope * 5, rtol=1e-3)  # and the next one, too
    np.testing.assert_allclose(ridge_weights(dots[1:, 1:], dots[1:, 0], 1e9), (1, 0, 0), atol=1e-6)


def job(said: list[str]) -> Any:
    return SimpleNamespace(log=SimpleNamespace(say=lambda message: said.append(message["note"])))


def test_periods_add_up_with_forgetting_and_a_checkpoint_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def dots(_: Any, __: Any, period: int, back: int) -> Any:
        asked.append(period)
        gradients = np.random.default_rng(period).normal(size=(back + 1, 9))
        return gradients @ gradients.T

    monkeypatch.setattr(future_gradient, "dot_products", dots)
    monkeypatch.setattr(future_gradient, "visited", lambda _, period: future_gradient.Visited(period, []))
    update: Any = update_of({"name": "future_gradient", "periods": 2, "forgetting": 0.5})
    assert [update.weights(job([]), period) for period in (0, 1)] == [(1.0,), (1.0,)], "nothing to forecast from yet"
    whole = [update.weights(job([]), period) for period in (2, 3, 4)]
    assert asked == [2, 3, 4]
    assert update.weights(job([]), 4) == whole[2], "within a period it says what it said"
    assert asked == [2, 3, 4]
    again: Any = update_of({"name": "future_gradient", "periods": 2, "forgetting": 0.5})
    for period in range(4):
        again.weights(job([]), period)
    kept: Any = update_of({"name": "future_gradient", "periods": 2, "forgetting": 0.5})
    kept.from_raw(again.to_raw())
    assert kept.weights(job([]), 3) == whole[1]
    assert kept.weights(job([]), 4) == whole[2]
    products = [dots(None, None, period, 2) for period in (2, 3, 4)]
    products = [each[1:, 1:] / each[0, 0] for each in products]
    np.testing.assert_allclose(update.fitted.products, products[2] + 0.5 * products[1] + 0.25 * products[0])
    raw = again.to_raw()
    for damaged, said in (
        ({**raw, "sums": {**raw["sums"], "weights": [1.0]}}, r"has sums of \[1, 2\] periods, not 2"),
        ({**raw, "sums": {**raw["sums"], "targets": "x"}}, "targets"),
        ({**raw, "dense": [{"shape": [3], "values": "AAAA"}]}, "dense parameters that are damaged"),
        ({**raw, "dense": [{"shape": [3], "values": "?"}]}, "dense parameters that are damaged"),
        ({"visited": 3}, "periods"),
    ):
        with pytest.raises(CorruptFile, match=said):
            update.from_raw(damaged)
    other: Any = update_of({"name": "future_gradient", "periods": 3})
    with pytest.raises(UsageError, match=r"weights of 2 periods, and data.periods.update has 3"):
        other.from_raw(again.to_raw())


@pytest.mark.parametrize("dots", [np.zeros((3, 3)), np.full((3, 3), np.nan)])
def test_a_period_whose_gradient_says_nothing_is_learnt_by_itself(dots: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future_gradient, "dot_products", lambda *_: dots)
    monkeypatch.setattr(future_gradient, "visited", lambda _, period: future_gradient.Visited(period, []))
    said: list[str] = []
    update = FutureGradient(periods=2)
    assert [update.weights(job(said), period) for period in (4, 5)] == [(1.0,), (1.0,)]
    assert said == ["period 5: its gradient is zero or not finite, so it is learnt by itself"]


def test_gradients_that_are_multiples_of_another_have_weights() -> None:
    line = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    weights = ridge_weights(line[1:, 1:], line[1:, 0], 0.02)
    assert np.isfinite(weights).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"periods": 1}, "periods is 1; 2 or more, or write incremental"),
        ({"forgetting": 0.0}, "forgetting is 0.0; it must be above 0"),
        ({"ridge": 0.0}, "ridge is 0.0; it must be above 0, since gradients may be multiples"),
        ({"period": 3}, "data.periods.update.period is no setting; did you mean 'periods'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        update_of({"name": "future_gradient", **settings})


def test_what_does_not_go_with_it_is_refused() -> None:
    from recsmith.training import Run, RunData
    from recsmith.training.run.refusals import check_together, data_parts
    from recsmith.training.systems.periods.settings import Periods

    periods = Periods(samples=10, update="future_gradient")
    run = Run(data=RunData(train="x", periods=periods, deduplicate="auto"), output="x")
    with pytest.raises(
        UsageError, match=r"data.deduplicate changes which bags are looked up, which does not go with data.periods"
    ):
        check_together(data_parts(run))
    own = replace(run, data=replace(run.data, deduplicate="off"), pipeline="mine:Step")
    with pytest.raises(UsageError, match=r"pipeline: module:Class changes how a step is made, .*; write incremental"):
        check_together(data_parts(own))
    with pytest.raises(UsageError, match=r"pipeline: dance changes how a step is made"):
        check_together(data_parts(replace(own, pipeline={"name": "dance"})))
    check_together(data_parts(replace(own, data=replace(own.data, periods=Periods(samples=10)))))
