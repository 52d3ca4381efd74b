"""What one table costs the step: the step without it is that of a plan without it; other places are explain's."""

from dataclasses import replace

import pytest

import recsmith
from recsmith.analyses.explain import explain
from recsmith.analyses.one_table import table_cost
from recsmith.errors import UsageError


@pytest.fixture(scope="module")
def made() -> recsmith.Plan:
    tables = recsmith.sample_workload(8, 3, max_bytes=2**28)
    return recsmith.plan(tables, "h100:4", planner="size_greedy", cost_model="analytic").plan


def test_the_step_without_a_table_is_that_of_a_plan_without_it(made: recsmith.Plan):
    assert made.cost is not None
    for placement in made.placements:
        found = table_cost(made, placement.table)
        rest = tuple(each for each in made.workload.tables if each.name != placement.table)
        others = tuple(each for each in made.placements if each.table != placement.table)
        priced = recsmith.price(replace(made.workload, tables=rest), made.cluster, others, cost_model="analytic")
        assert found.step_s == pytest.approx(made.cost.step_s, rel=1e-12)
        assert priced.cost is not None
        assert found.without_s == pytest.approx(priced.cost.step_s, rel=1e-9)
        assert 0 < found.without_s <= found.step_s * (1 + 1e-12)


def test_the_best_other_place_is_the_first_of_explain(made: recsmith.Plan):
    name = max(made.workload.tables, key=lambda each: each.weight_bytes).name
    account = explain(made, name).account
    assert account is not None
    others = [each for each in account.alternatives if not each.current and each.total_s is not None]
    assert table_cost(made, name).best == others[0]


def test_the_best_other_place_is_another():
    plan = recsmith.plan(recsmith.sample_workload(30, 1, max_bytes=2**28), "h100:4", planner="cost_greedy").plan
    for now in plan.placements:
        best = table_cost(plan, now.table).best
        assert best is not None
        same = (best.sharding_type, best.compute_kernel, best.widths, best.ranks, best.cache)
        assert same != (now.sharding_type, now.compute_kernel, now.widths, now.ranks, now.cache)


def test_an_unknown_table_is_refused_with_the_nearest(made: recsmith.Plan):
    name = made.placements[0].table
    with pytest.raises(UsageError, match=f"did you mean '{name}'"):
        table_cost(made, f"{name}x")
