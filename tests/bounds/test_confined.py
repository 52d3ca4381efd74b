"""Bounds count what constraints confine to some ranks, and never more than the best plan that keeps them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.cases import Case, all_placements, cluster, seeded, table, workload
from support.constrained import constrained_case, least_s

from recsmith.bounds import lower_bound
from recsmith.bounds.confined import confined_bound
from recsmith.bounds.linear_bounds import tightest_linear_bound
from recsmith.errors import UsageError
from recsmith.problems import Constraints, Pin, TableRule

MOST_PLANS = 400  # of a case, each of which is priced
BOTH = ("torchrec", "analytic")


def confined(case: Case) -> float:
    return confined_bound(case.evaluator, tightest_linear_bound(case.evaluator))


@pytest.mark.parametrize("model", BOTH)
def test_no_plan_that_keeps_the_constraints_costs_less(model: str) -> None:
    asked = decided = 0
    for seed in range(140):
        case = replace(constrained_case(seeded(seed)), cost_model=model)
        if math.prod(map(len, all_placements(replace(case, constraints=Constraints())).values())) > MOST_PLANS:
            continue
        try:
            bound = lower_bound(case.evaluator).bound.value_s
        except UsageError:
            continue
        best = least_s(case)
        if bound is None or not np.isfinite(best):
            continue
        asked += 1
        free = lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s
        decided += free is not None and confined(case) > free
        assert bound <= best * (1 + 1e-9), f"seed {seed}"
    assert asked > 8
    assert decided > 2 or model == "analytic"  # where launches outweigh such small tables


TABLES = tuple(table(f"t{i}", 400_000, 64, 40.0) for i in range(8))


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            tuple(TableRule(tables=f"t{i}", pin=Pin(sharding_type="table_wise", ranks=(1,))) for i in range(6)),
            id="pins",
        ),
        pytest.param((TableRule(tables="t[0-5]", ranks=(1,)),), id="ranks"),
        pytest.param((TableRule(tables="t*", not_ranks=(0, 1)), TableRule(tables="t3", ranks=(2,))), id="forbidden"),
    ],
)
def test_ranks_that_must_carry_much_raise_the_bound(model: str, rules: tuple[TableRule, ...]) -> None:
    case = Case(workload(*TABLES, batch_size=2048), cluster(4), constraints=Constraints(rules=rules), cost_model=model)
    free = lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s
    bound = lower_bound(case.evaluator).bound.value_s
    assert free is not None
    assert bound is not None
    assert bound > 1.4 * free
    assert bound <= case.plan("cost_greedy").plan.cost.total_s * (1 + 1e-9)
