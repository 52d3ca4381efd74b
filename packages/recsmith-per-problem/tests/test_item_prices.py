"""Prices of items: those of plans, of many placements at once."""

import numpy as np
from per_problem_cases import BOTH, drawn_problem

from recsmith.costs import cost_model, step_seconds
from recsmith.planners.placing import best_split, items_of
from recsmith.testing import sample_problems
from recsmith_per_problem.item_prices import ItemPrices


def test_steps_are_those_of_plans() -> None:
    asked, random = 0, np.random.default_rng(0)
    for model in BOTH:
        for problem in sample_problems():
            evaluator = cost_model(model).compile(problem)
            items = items_of(problem, evaluator)
            if items is None:
                continue
            target = random.integers(0, items.devices, (3, len(items)))
            plans = [items.assignment(each).footprint(problem) for each in target]
            steps = [step_seconds(evaluator, plan) for plan in plans]
            np.testing.assert_allclose(ItemPrices.of(items, evaluator).steps(target), steps, rtol=1e-9)
            asked += 1
    assert asked > 3


def test_changes_are_the_loads_with_an_item_less_those_without_it() -> None:
    problem = sample_problems()[0]
    evaluator = cost_model().compile(problem)
    items = items_of(problem, evaluator)
    assert items is not None
    prices, target = ItemPrices.of(items, evaluator), np.arange(len(items)) % items.devices
    loads, adds = prices.changes(target)
    np.testing.assert_allclose(loads, prices.loads(prices.sums(target[None]))[:, 0])
    for item in range(len(items)):
        out = target.copy()
        out[item] = -1
        without = prices.loads(prices.sums(out[None]))[:, 0]
        own = int(target[item])
        np.testing.assert_allclose(adds[:, item, own], (loads - without)[:, own], rtol=1e-6, atol=1e-15)
        other = (own + 1) % items.devices
        out[item] = other
        there = prices.loads(prices.sums(out[None]))[:, 0]
        np.testing.assert_allclose(adds[:, item, other], (there - without)[:, other], rtol=1e-6, atol=1e-15)


def test_items_of_the_best_split_fall() -> None:
    for seed in range(3):
        problem = drawn_problem(seed)
        evaluator = cost_model().compile(problem)
        found = best_split(problem, evaluator)
        assert found is not None
        seconds = ItemPrices.of(found.items, evaluator).alone
        assert len(seconds) >= 20
        assert (np.diff(seconds) <= 1e-5 * seconds.max()).all()
