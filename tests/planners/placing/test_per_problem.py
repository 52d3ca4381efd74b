"""Prices of items: those of plans, of many placements at once."""

import numpy as np
from support.cases import BOTH, seeded, small_case

from recsmith.costs import cost_model, step_seconds
from recsmith.planners.placing import items_of
from recsmith.planners.placing.per_problem import ItemPrices, best_split
from recsmith.testing.problems import sample_problems


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


def test_the_best_split_is_complete_where_one_is_and_its_items_fall() -> None:
    asked = 0
    for seed in range(6):
        case = small_case(seeded(seed))
        found = best_split(case.problem, case.evaluator)
        if found is None or not found.draft.complete:
            continue
        asked += 1
        seconds = ItemPrices.of(found.items, case.evaluator).alone
        assert (np.diff(seconds) <= 1e-5 * max(seconds.max(initial=0.0), 1e-12)).all()
    assert asked > 2
