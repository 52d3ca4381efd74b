"""Every planner keeps every constraint, and finds a plan exactly where brute force has one."""

from dataclasses import replace

import numpy as np
import pytest
from support.cases import Case, cluster, fits, seeded, table, workload
from support.constrained import constrained_case, is_small, keeps, some_plan

from recsmith.costs import COST_MODELS
from recsmith.errors import Infeasible
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.search.device_state import Assignment
from recsmith.planners.search.placement import mended
from recsmith.planning import PLANNERS
from recsmith.planning.contradictions import Question, find_conflict
from recsmith.problems import Apart, Constraints, PerRank, Pin, TableRule, Together, build_problem
from recsmith.problems import fits as fits_memory

CASES = 26  # as `make test` has time for: every planner has some, with and without a plan


def test_plans_exist_where_brute_force_has_one_and_keep_every_constraint() -> None:
    asked, sides, seed = 0, {True: 0, False: 0}, 500
    while asked < CASES:
        case, seed = constrained_case(seeded(seed)), seed + 1
        if not is_small(case):
            continue
        exists, asked = some_plan(case), asked + 1
        sides[exists] += 1
        planner = list(PLANNERS)[asked % len(PLANNERS)]
        try:
            plan = case.plan(planner).plan
        except Infeasible:
            assert not exists, f"seed {seed - 1}, {planner}"
            continue
        assert exists, f"seed {seed - 1}, {planner}"
        assert keeps(case, plan.placements), f"seed {seed - 1}, {planner}"
        assert fits(case, plan.placements), f"seed {seed - 1}, {planner}"
    assert min(sides.values()) >= 5


def test_conflicts_are_minimal_by_brute_force() -> None:
    asked, seed = 0, 900
    while asked < 6:
        case, seed = constrained_case(seeded(seed)), seed + 1
        if not is_small(case) or some_plan(case):
            continue
        found = find_conflict(Question(case.workload, case.cluster, case.space), case.constraints)
        if found is None:
            assert not some_plan(replace(case, constraints=case.constraints.only(())))
            continue
        asked += 1
        assert not some_plan(replace(case, constraints=case.constraints.only(found.parts)))
        for part in found.parts:
            rest = tuple(each for each in found.parts if each != part)
            assert some_plan(replace(case, constraints=case.constraints.only(rest))), f"seed {seed - 1}, {part}"


TABLES = tuple(table(f"t{i}", 1000 * (i + 1), 32) for i in range(9))
PINS = (
    TableRule(tables="t0", pin=Pin(sharding_type="table_wise", ranks=(3,))),
    TableRule(tables="t1", pin=Pin(sharding_type="column_wise", ranks=(0, 1, 2), widths=(16, 12, 4))),
)
KINDS = {
    "ranks": Constraints(rules=(TableRule(tables="t*", not_ranks=(2,)), TableRule(tables="t3", ranks=(0,)))),
    "hosts": Constraints(rules=(TableRule(tables="t[2-5]", hosts=(1,)),)),
    "pins": Constraints(rules=PINS),
    "shards": Constraints(rules=(TableRule(tables="t*", max_shards=1),), per_rank=(PerRank(max_shards=3),)),
    "tables": Constraints(per_rank=(PerRank(max_tables=3),)),
    "apart": Constraints(apart=(Apart(tables=("t0", "t1", "t2", "t3")), Apart(tables=("t7", "t8"), per="host"))),
    "together": Constraints(together=(Together(tables=("t4", "t5", "t6")), Together(tables=("t7", "t8"), per="host"))),
    "widths": Constraints(rules=(TableRule(tables="t*", widths=(8, 32)),)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("planner", ["auto", "cost_greedy", "neuroshard"])
def test_each_kind_is_kept_where_it_costs_something(planner: str, kind: str) -> None:
    case = Case(workload(*TABLES), cluster(2, 2), constraints=KINDS[kind], cost_model="analytic")
    free = replace(case, constraints=Constraints())
    made = case.plan(planner, iterations=40)
    assert keeps(case, made.plan.placements)
    assert not made.left_out or "keeps the constraints" not in made.left_out[0]
    if planner == "auto":  # the bound holds for the constrained plan, and not below the plan that is free
        assert made.plan.gap is not None
        assert made.plan.gap >= -1e-9
        assert made.plan.bound.space != free.plan("cost_greedy").plan.bound.space


@pytest.mark.skipif(not is_compiled(), reason="needs the compiled annealing")
def test_compiled_annealing_keeps_to_ranks_and_leaves_pins_alone() -> None:
    pin = Pin(sharding_type="column_wise", ranks=(0, 1, 3), widths=(16, 12, 4))
    rules = (*KINDS["ranks"].rules, TableRule(tables="t1", pin=pin))
    busy = [
        table(f"t{i}", 1000 * (i + 1), 32, 40.0 * (1 + i % 3)) for i in range(9)
    ]  # of others the bound is met at once
    case = Case(
        workload(*busy, batch_size=512), cluster(2, 2), constraints=Constraints(rules=rules), cost_model="analytic"
    )
    made = case.plan("auto")
    assert "annealing" in made.members
    assert keeps(case, made.plan.placements)


def test_what_breaks_a_constraint_is_mended() -> None:
    """A plan that was made without constraints becomes one that keeps them; unbroken tables stay where they are."""
    constraints = Constraints(apart=(Apart(tables=("t0", "t1", "t2")),))
    problem = build_problem(workload(*TABLES), cluster(2, 2), constraints=constraints)
    evaluator = COST_MODELS["torchrec"].compile(problem)
    one = np.flatnonzero(problem.options.count.sum(axis=1) == 1)
    whole = one[np.searchsorted(problem.options.table[one], np.arange(len(problem.tables)))]
    draft = Assignment.of(problem, whole)
    draft.target[:] = 0
    broken = draft.footprint(problem)
    named = [problem.tables.index(each) for each in problem.tables if each.name in ("t0", "t1", "t2")]
    assert problem.legality.broken(broken)[named].all() == bool((problem.modes.span[broken.mode] == 0).all())
    better = mended(evaluator, broken)
    assert better is not None
    assert problem.legality.holds(better)
    assert fits_memory(problem, better)
    others = ~np.isin(problem.modes.table[broken.mode], named)
    same = ~np.isin(problem.modes.table[better.mode], named)
    assert broken.target[others].tolist() == better.target[same].tolist()


def test_annealing_without_compiled_code_keeps_to_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that no plan takes may name ranks that pieces of hosts do not have."""
    monkeypatch.setattr("recsmith.planners.auto.annealing_turns.is_compiled", lambda: False)
    case = Case(workload(*TABLES[:4]), cluster(2, 2), constraints=KINDS["ranks"], cost_model="torchrec")
    made = case.plan("auto", iterations=40)
    assert "annealing" in made.members
    assert keeps(case, made.plan.placements)
