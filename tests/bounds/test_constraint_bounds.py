"""Bounds count what constraints confine to some ranks, and never more than the best plan that keeps them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.amounts import seeds, some
from support.cases import Case, all_placements, cluster, seeded, table, workload
from support.constrained import constrained_case, least_s

from recsmith.bounds import lower_bound
from recsmith.bounds.constraint_bounds import confined_bound, counted_bound
from recsmith.bounds.plane_mixes import tightest_linear_bound
from recsmith.errors import UsageError
from recsmith.problems import Apart, Constraints, PerRank, Pin, Space, TableRule

MOST_PLANS = 400  # of a case, each of which is priced
BOTH = ("torchrec", "analytic")
MOST_COUNTED_PLANS = 600  # of a case, each of which is priced


def confined(case: Case) -> float:
    return confined_bound(case.evaluator, tightest_linear_bound(case.evaluator))


@pytest.mark.parametrize("model", BOTH)
def test_no_plan_that_keeps_the_constraints_costs_less(model: str) -> None:
    asked = decided = 0
    for seed in seeds(70, 140):
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
        assert bound <= best * (1 + 1e-9), f"seed {seed}"
        if model != "analytic":  # where launches outweigh such small tables
            free = lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s
            decided += free is not None and confined(case) > free
    assert asked > some(4, 8)
    assert decided > some(1, 2) or model == "analytic"


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


def counted(case: Case) -> float:
    return counted_bound(case.evaluator, tightest_linear_bound(case.evaluator))


@pytest.mark.parametrize("model", BOTH)
def test_no_plan_that_keeps_the_counts_costs_less(model: str) -> None:
    asked = decided = 0
    for seed in seeds(200, 400):
        case = replace(constrained_case(seeded(seed)), cost_model=model)
        given = case.constraints
        if not (given.apart or given.per_rank):
            continue
        if math.prod(map(len, all_placements(replace(case, constraints=Constraints())).values())) > MOST_COUNTED_PLANS:
            continue
        try:
            bound = counted(case)
        except UsageError:
            continue
        best = least_s(case)
        if not np.isfinite(best):
            continue
        asked += 1
        assert bound <= best * (1 + 1e-9), f"seed {seed}"
        if model != "analytic":
            decided += bound > (lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s or 0.0)
    assert asked > some(4, 8)
    assert decided > some(1, 2) or model == "analytic"


UNEQUAL_TABLES = tuple(table(f"t{i}", 400_000, 64, 40.0 * (i + 1)) for i in range(4))
SPLIT = Space(types=("table_wise", "column_wise", "row_wise"), widths="any")
CASES = {
    "apart": Constraints(apart=(Apart(tables=("t*",)),)),
    "tables": Constraints(per_rank=(PerRank(max_tables=1),)),
    "shards": Constraints(per_rank=(PerRank(max_shards=1),)),
    "of_some": Constraints(apart=(Apart(tables=("t0", "t1", "t3")),), rules=(TableRule(tables="t2", ranks=(0, 1)),)),
}


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("constraints", CASES.values(), ids=CASES)
def test_few_places_raise_the_bound(model: str, constraints: Constraints) -> None:
    """Four tables of 1 : 2 : 3 : 4 on five ranks: only one of them can be split, so the step is 3 where 2 is mean."""
    case = Case(
        workload(*UNEQUAL_TABLES, batch_size=2048), cluster(5), SPLIT, constraints=constraints, cost_model=model
    )
    free = lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s
    bound = lower_bound(case.evaluator).bound.value_s
    assert free is not None
    assert bound is not None
    assert bound > 1.2 * free
    assert bound <= case.plan("cost_greedy").plan.cost.total_s * (1 + 1e-9)


def test_hosts_are_places_too() -> None:
    apart = Constraints(apart=(Apart(tables=("t*",), per="host"),))
    case = Case(
        workload(UNEQUAL_TABLES[0], UNEQUAL_TABLES[3], batch_size=2048),
        cluster(2, 2),
        SPLIT,
        constraints=apart,
        cost_model="torchrec",
    )
    assert counted(case) > 1.1 * counted(replace(case, constraints=Constraints(apart=(Apart(tables=("t*",)),))))
