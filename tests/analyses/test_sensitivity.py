"""Pooling factors that are off: every draw costs what the workload with those factors costs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.build import cluster, placed, plan_of, table, workload
from support.cases import Case, drawn, medium_case, random_placements, seeded

from recsmith.analyses import sensitivity as module
from recsmith.analyses.sensitivity import sensitivity
from recsmith.costs import COST_MODELS, step_seconds
from recsmith.errors import UsageError
from recsmith.planning.simulate import simulate
from recsmith.plans import Placement
from recsmith.problems import build_problem, constraints_to_raw, footprint_of
from recsmith.workloads import Workload


def scaled(work: Workload, factors: dict[str, float]) -> Workload:
    """The workload with the pooling factors of each table times its factor."""
    tables = [
        replace(t, features=tuple(replace(f, pooling_factor=f.pooling_factor * factors[t.name]) for f in t.features))
        for t in work.tables
    ]
    return replace(work, tables=tuple(tables))


def rebuilt(
    case: Case, placements: tuple[Placement, ...], model: str, draws: int, off: float, seed: int
) -> list[float]:
    """Seconds of each draw, by building its workload and pricing the placements on it."""
    names = sorted(t.name for t in case.workload.tables)
    totals: list[float] = []
    for row in np.random.default_rng(seed).uniform(1 - off, 1 + off, (draws, len(names))).tolist():
        work = scaled(case.workload, dict(zip(names, row, strict=True)))
        problem = build_problem(work, case.cluster, case.space, case.constraints, needless=True)
        evaluator = COST_MODELS[model].compile(problem)
        totals.append(step_seconds(evaluator, footprint_of(problem, placements)))
    return totals


@settings(max_examples=15)
@given(drawn(medium_case))
@pytest.mark.parametrize("model", COST_MODELS)
def test_a_draw_costs_what_the_workload_with_its_factors_costs(model: str, case: Case):
    placements = random_placements(seeded(0), case)
    totals = rebuilt(case, placements, model, 3, 0.4, 7)
    plan = replace(
        plan_of(case.workload, case.cluster, *placements), constraints=constraints_to_raw(case.space, case.constraints)
    )
    found = sensitivity(plan, model, draws=3, off=0.4, seed=7)
    assert found.median_s == pytest.approx(sorted(totals)[1], rel=1e-9, abs=1e-300)
    assert found.p95_s == pytest.approx(float(np.percentile(totals, 95)), rel=1e-9, abs=1e-300)
    assert (found.draws, found.off) == (3, 0.4)


def hot(name: str, dim: int, **rest: Any) -> Any:
    return table(name, rows=100_000, dim=dim, pooling_factor=20.0, **rest)


PLAN = plan_of(
    workload(hot("a", 64), hot("b", 64), hot("c", 128), batch_size=512),
    cluster(),
    placed("a", "table_wise", [0]),
    placed("b", "table_wise", [1]),
    placed("c", "column_wise", [0, 1], [64, 64]),
)


@pytest.mark.parametrize("model", COST_MODELS)
def test_nothing_off_is_the_cost_itself(model: str):
    found = sensitivity(PLAN, model, draws=2, off=0.0)
    cost = simulate(PLAN, model).cost.total_s
    assert found.median_s == found.p95_s == pytest.approx(cost, rel=1e-12)


def test_the_plans_own_model_is_asked_by_default():
    assert (
        sensitivity(PLAN, draws=4) == sensitivity(PLAN, "torchrec", draws=4) != sensitivity(PLAN, "analytic", draws=4)
    )


def test_two_tables_off_apart_cost_more_in_the_middle_than_planned():
    balanced = simulate(PLAN, "torchrec").cost.total_s
    found = sensitivity(PLAN, "torchrec", draws=50)
    assert balanced < found.median_s < found.p95_s < 1.2 * balanced


def test_order_of_tables_and_a_second_run_do_not_matter():
    work = replace(PLAN.workload, tables=PLAN.workload.tables[::-1])
    assert sensitivity(replace(PLAN, workload=work), draws=5) == sensitivity(PLAN, draws=5)
    assert sensitivity(PLAN, draws=5, seed=1) != sensitivity(PLAN, draws=5)


def test_draws_priced_together_or_one_by_one_are_the_same(monkeypatch: pytest.MonkeyPatch):
    together = sensitivity(PLAN, "analytic", draws=7)
    monkeypatch.setattr(module, "PIECES_AT_ONCE", 1)
    alone = sensitivity(PLAN, "analytic", draws=7)
    assert (alone.median_s, alone.p95_s) == pytest.approx((together.median_s, together.p95_s), rel=1e-12)


def test_tables_that_nobody_reads_stay_unread():
    work = workload(table("a", pooling_factor=0.0))
    plan = plan_of(work, cluster(), placed("a", "table_wise", [0]))
    assert sensitivity(plan, "torchrec", draws=3).p95_s == simulate(plan, "torchrec").cost.total_s


def test_placements_outside_of_the_space_are_priced():
    narrow = {"types": ["row_wise"], "widths": "torchrec", "kernels": ["fused"]}
    found = sensitivity(replace(PLAN, constraints=narrow), "torchrec", draws=3)
    assert found.median_s == pytest.approx(sensitivity(PLAN, "torchrec", draws=3).median_s, rel=1e-12)


@pytest.mark.parametrize("words", [{"draws": 0}, {"off": -0.1}, {"off": 1.5}])
def test_draws_and_distance_are_checked(words: dict[str, Any]):
    with pytest.raises(UsageError, match="draws start at 1, off lies in 0"):
        sensitivity(PLAN, **words)
    with pytest.raises(UsageError, match="seed is -1"):
        sensitivity(PLAN, seed=-1)
