"""Large neighbourhoods: the solver's best of some tables beside others that stay, and its turn in planner auto."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from support import cases
from support.cases import BOTH, Case, all_placements, brute_force, check_plan, cluster, seeded, small_case

from recsmith.clusters import load_cluster
from recsmith.costs import step_seconds
from recsmith.errors import RecSmithError
from recsmith.planners.auto import planner as auto
from recsmith.planners.auto.annealing_turns import AnnealingTurns
from recsmith.planners.auto.neighbourhoods import Neighbourhoods
from recsmith.planners.solver.layouts import all_shares, useful_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planners.solver.placed_tables import FixedTables, merged, rebuilt_from
from recsmith.plans import Plan
from recsmith.problems import Footprint, Space, fits, footprint_of, placements_of
from recsmith.sharding import Span
from recsmith.workloads.sample import shared_pool

needs_solver = pytest.mark.skipif(find_spec("ortools") is None, reason="needs the extra `solve`")


def planned(models: tuple[str, ...], planner: str = "random", most: int = 10) -> Iterator[tuple[Case, Plan]]:
    """Small cases with a plan that leaves something to do."""
    for seed in range(100, 100 + most):
        case = small_case(seeded(seed), models=models)
        try:
            plan = case.plan(planner).plan
        except RecSmithError:
            continue
        if plan.cost.total_s > 0:
            yield case, plan


@cache
def tangled() -> Case:
    """Too many tables to try all plans; half of them large, so that which of them share a rank decides."""
    pool = shared_pool()
    chosen = np.random.default_rng(8).choice(len(pool.tables), 14, replace=False)
    tables = tuple(pool.tables[i] for i in sorted(chosen.tolist()))
    return Case(replace(pool, tables=tables), load_cluster("h100:4"), Space(), cost_model="analytic")


# --- what stays -----------------------------------------------------------------------------------------------------


def test_what_stays_and_what_is_free_are_the_plan() -> None:
    for case, plan in planned(BOTH):
        footprint = footprint_of(case.problem, plan.placements)
        free = np.arange(len(case.problem.tables)) % 2 == 0
        one, other = (FixedTables.of(case.evaluator, footprint, some) for some in (free, ~free))
        whole = FixedTables.of(case.evaluator, footprint, np.zeros_like(free))
        for each in ("sums", "pieces", "device", "host"):
            assert np.allclose(getattr(one, each) + getattr(other, each), getattr(whole, each), rtol=1e-12)
        assert (one.groups | other.groups == whole.groups).all()
        assert not FixedTables.nothing(case.evaluator).groups.any()
        mine = free[case.problem.modes.table[footprint.mode]]
        pieces = Footprint(footprint.mode[mine], footprint.width[mine], footprint.target[mine])
        assert placements_of(case.problem, merged(case.problem, footprint, free, pieces)) == plan.placements


def test_useful_shares_hold_plans_at_no_higher_cost() -> None:
    held = 0
    for case, plan in planned(BOTH, most=16):
        evaluator, footprint = case.evaluator, footprint_of(case.problem, plan.placements)
        found = rebuilt_from(evaluator, all_shares(evaluator), footprint)
        assert found is not None
        assert step_seconds(evaluator, found) == pytest.approx(plan.cost.total_s, rel=1e-9)
        useful = rebuilt_from(evaluator, useful_shares(evaluator, all_shares(evaluator)), footprint)
        held += useful is not None and step_seconds(evaluator, useful) <= plan.cost.total_s * (1 + 1e-9)
        for each in (found, useful):
            assert each is None or (_columns(case, each) == _columns(case, footprint)).all()
    assert held > 5


def _columns(case: Case, footprint: Footprint) -> np.ndarray:
    """Columns of each table on each target of each span."""
    problem, columns = case.problem, np.zeros((len(case.problem.tables), len(Span), case.cluster.world_size))
    span = problem.modes.span[footprint.mode]
    np.add.at(columns, (problem.modes.table[footprint.mode], span, footprint.target), footprint.width)
    return columns


@needs_solver
@pytest.mark.parametrize("model", BOTH)
def test_the_best_beside_what_stays_equals_brute_force(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsmith.planners.solver.cp_sat import solve
    from recsmith.planners.solver.cp_sat_model import SpaceModel

    better = 0
    for number, (case, plan) in enumerate(planned((model,), most=16)):
        stays = number % len(case.problem.tables)
        free = np.arange(len(case.problem.tables)) != stays
        every, there = all_placements(case), plan.placements
        kept = next(p for p in there if p.table == case.problem.tables[stays].name)
        with monkeypatch.context() as patch:
            patch.setattr(cases, "all_placements", lambda _, e=every, k=kept: {**e, k.table: [k]})
            least = brute_force(case).least_s
        footprint, evaluator = footprint_of(case.problem, there), case.evaluator
        shares = all_shares(evaluator)
        faces = linear_pieces_of(evaluator, shares.terms)
        assert faces is not None
        table = np.array([layout.table for layout in shares.layouts])[shares.layout]
        rest, total = FixedTables.of(evaluator, footprint, free), plan.cost.total_s * (1 + 1e-6)
        best = solve(SpaceModel(evaluator, shares.take(free[table]), faces, total, fixed=rest), {}).best
        found = merged(case.problem, footprint, free, best) if best else footprint
        assert step_seconds(evaluator, found) == pytest.approx(least, rel=1e-7)
        assert fits(case.problem, found)
        assert kept in placements_of(case.problem, found)
        better += step_seconds(evaluator, found) < plan.cost.total_s * 0.99
    assert better > 1


@needs_solver
def test_a_poor_plan_gets_better_and_stays_legal() -> None:
    case = tangled()
    start = case.plan("size_greedy").plan
    near = Neighbourhoods(case.evaluator, footprint_of(case.problem, start.placements), start.cost.total_s, seed=0)
    for _ in range(4):
        found = near.next()
        if found is not None:
            total = step_seconds(case.evaluator, found)
            assert fits(case.problem, found)
            assert total < near.total_s
            near.take(found, total)
    assert near.total_s < start.cost.total_s * 0.98


# --- in planner auto ------------------------------------------------------------------------------------------------


@pytest.fixture
def solver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Annealing and local search find nothing, so that there is something left."""
    monkeypatch.setattr("recsmith.planners.auto.annealing_turns.is_compiled", lambda: True)
    monkeypatch.setattr(AnnealingTurns, "halving", None)
    monkeypatch.setattr(AnnealingTurns, "turn", lambda turns: False)
    monkeypatch.setattr(auto._Team, "_improve", lambda team: False)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(auto, "WORK", 0.3)


@needs_solver
def test_auto_gains_by_it_and_finds_the_same_again(solver_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    case = tangled()
    one, other = case.plan(), case.plan()
    assert one.plan == other.plan
    assert one.members[-1] == "neighbourhoods"
    check_plan(case, one.plan)
    monkeypatch.setattr(auto, "is_installed", lambda: False)
    assert one.plan.cost.total_s < 0.99 * case.plan().plan.cost.total_s


def test_auto_says_what_it_left_out(solver_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "is_installed", lambda: False)
    found = tangled().plan()
    assert found.left_out == ("neighbourhoods: left out, needs OR-Tools",)
    assert "neighbourhoods" not in found.members


@needs_solver
def test_iterations_and_time_are_kept(solver_alone: None) -> None:
    case = tangled()
    longer = case.plan(iterations=41)
    assert (longer.iterations, longer.truncated) == (41, False)
    assert longer.plan == case.plan(iterations=41).plan
    assert case.plan(time_limit_s=1e-6).truncated


def test_large_problems_are_not_listed() -> None:
    tables = (cases.table(f"t{i}", 100, 1024) for i in range(16))
    case = Case(cases.workload(*tables), cluster(8))
    assert not Neighbourhoods.suit(case.problem)
    assert Neighbourhoods.suit(tangled().problem)
