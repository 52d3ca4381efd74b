"""Runs of CP-SAT find the least of all plans, start from plans, say what they find, and stop when they are told."""

from dataclasses import replace
from functools import cache

import pytest
from support.cases import BOTH, BruteForce, Case, brute_force, cluster, seeded, small_case, table, workload

pytest.importorskip("ortools")

from recsmith.costs import step_seconds
from recsmith.planners.solver.cp_sat import solve, start_from
from recsmith.planners.solver.cp_sat_model import SpaceModel
from recsmith.planners.solver.layouts import all_shares, useful_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint, Space, fits, footprint_of

SEEDS = range(100, 107)  # at 100, presolve of OR-Tools 9.15 loses all plans where it may lose some
WHOLE = Space(types=("table_wise",))


@cache
def known(seed: int, model: str) -> tuple[Case, BruteForce]:
    case = small_case(seeded(seed), models=(model,))
    return case, brute_force(case)


def space_of(case: Case, total_s: float | None = None, bound_s: float = 0.0) -> SpaceModel:
    shares = all_shares(case.evaluator)
    linear_pieces = linear_pieces_of(case.evaluator, shares.terms)
    assert linear_pieces is not None
    return SpaceModel(case.evaluator, useful_shares(case.evaluator, shares), linear_pieces, total_s, bound_s)


def trio(hbm: int = 2**40) -> Case:
    """Three equal tables."""
    return Case(workload(*(table(f"t{i}", 1000, 16) for i in range(3))), cluster(2, hbm=hbm), WHOLE)


@pytest.mark.parametrize("model", BOTH)
def test_it_finds_the_least_and_proves_it(model: str) -> None:
    for seed in SEEDS:
        case, every = known(seed, model)
        any_ = solve(space_of(case), {})
        assert any_.impossible == (every.least_s is None)
        if every.least_s:
            assert any_.best is not None
            totals: list[float] = []

            def on_plan(found: Footprint, case: Case = case, totals: list[float] = totals) -> bool:
                totals.append(step_seconds(case.evaluator, found))
                return False

            run = solve(space_of(case, step_seconds(case.evaluator, any_.best)), {}, on_plan)
            assert run.proven
            assert run.best is not None
            assert fits(case.problem, run.best)
            assert totals[-1] == step_seconds(case.evaluator, run.best) == pytest.approx(every.least_s, rel=1e-7)
            assert every.least_s * (1 - 1e-7) <= run.bound_s <= every.least_s * (1 + 1e-12)


def test_tables_that_fit_in_total_but_not_each_somewhere_are_impossible() -> None:
    run = solve(space_of(trio(hbm=110_000)), {})
    assert (run.impossible, run.best, run.bound_s) == (True, None, 0.0)


def test_a_listener_stops_it() -> None:
    heard: list[Footprint] = []
    run = solve(space_of(trio()), {}, lambda found: heard.append(found) or True)
    assert len(heard) == 1
    assert run.best is not None
    assert run.best.target.tolist() == heard[0].target.tolist()


def placed_on(case: Case, ranks: tuple[int, ...]) -> Footprint:
    found = zip(case.plan("dim_greedy").plan.placements, ranks, strict=True)
    return footprint_of(case.problem, tuple(replace(placement, ranks=(rank,)) for placement, rank in found))


@pytest.mark.parametrize("ranks", [(0, 0, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_a_start_is_a_whole_solution_whatever_the_order_of_its_ranks(ranks: tuple[int, ...]) -> None:
    """The model has only one of equal plans, so the start must be turned into that."""
    case = trio()
    start = placed_on(case, ranks)
    total = step_seconds(case.evaluator, start)
    space = space_of(case, total)
    start_from(space, start)
    assert len(space.model.proto.solution_hint.vars) == len(space.model.proto.variables)
    run = solve(space, {"fix_variables_to_their_hinted_value": True})
    assert run.best is not None
    assert step_seconds(case.evaluator, run.best) == pytest.approx(total, rel=1e-12)


def test_a_start_that_the_model_lacks_is_no_error() -> None:
    case = trio()
    space = space_of(case, step_seconds(case.evaluator, placed_on(case, (0, 0, 1))))
    start_from(space, placed_on(case, (0, 0, 0)))  # takes longer than the model allows
    assert solve(space, {}).proven


def test_what_it_finds_is_the_same_again() -> None:
    case, every = known(103, "analytic")
    assert every.least_s
    runs = [solve(space_of(case, every.least_s * 2), {}) for _ in range(2)]
    assert runs[0].spent == runs[1].spent
    assert runs[0].bound_s == runs[1].bound_s
