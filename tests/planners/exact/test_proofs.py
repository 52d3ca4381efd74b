"""How work is counted and bounds are noted, without a solver."""

import math
from typing import Any

import pytest
from support.cases import Case, cluster, table, workload

from recsmith.bounds import lower_bound
from recsmith.errors import Infeasible
from recsmith.planners.exact.proofs import FIRST_UNITS, UNITS, EnumerationProof, Proof, SolverProof
from recsmith.planners.protocol import Budget, Search
from recsmith.planners.solver import cp_sat_model, is_installed
from recsmith.planners.solver.arrangements import arrangements_of
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint, Space, footprint_of

needs_solver = pytest.mark.skipif(not is_installed(), reason="needs the extra `solve`")


def case_of(hbm: int = 2**40) -> Case:
    """Three equal tables on two devices."""
    tables = (table(f"t{i}", 1000, 16) for i in range(3))
    return Case(workload(*tables), cluster(2, hbm=hbm), Space(types=("table_wise",)))


def plan_of(case: Case, *ranks: int) -> Footprint:
    placements = case.plan("dim_greedy").plan.placements
    fields: Any = [{"table": p.table, "sharding_type": "table_wise", "compute_kernel": "fused"} for p in placements]
    return footprint_of(
        case.problem, tuple(type(p)(**each, ranks=(r,)) for p, each, r in zip(placements, fields, ranks, strict=True))
    )


def search_of(case: Case, start: Footprint | None = None, **budget: Any) -> Search:
    return Search(case.evaluator, Budget(**budget), start, None)


def enumeration(search: Search) -> EnumerationProof:
    shares = all_shares(search.evaluator)
    arrangements = arrangements_of(search.evaluator.problem, shares, 1000)
    assert arrangements is not None
    return EnumerationProof(search, shares, arrangements, monotone=True)


def test_a_bound_counts_only_where_it_is_better_than_the_cost_model_s_own() -> None:
    case = case_of()
    proof = Proof(search_of(case, plan_of(case, 0, 0, 0)))
    proof.method = "test"
    own = lower_bound(case.evaluator).bound.value_s
    assert own is not None
    assert proof.bound_s == own
    assert proof.bound is None
    proof.record(own / 2, 0)
    assert proof.bound is None
    proof.record(own * 1.5, 0)
    assert proof.bound is not None
    assert proof.bound.value_s == own * 1.5
    assert proof.bound.kind == "exact: test"
    proof.record(math.inf, 0)
    assert proof.bound.value_s == proof.search.total_s


def test_units_of_work_are_iterations_and_the_first_plan_is_one_of_them() -> None:
    case = case_of()
    proof = Proof(search_of(case, plan_of(case, 0, 0, 0), iterations=3))
    assert (proof.left, proof.ends) == (2, False)
    proof.record(0.0, 1.2)
    assert proof.left == pytest.approx(0.8)
    assert proof.search.iterations == 3
    proof.record(0.0, 1.0)
    assert proof.ends
    assert proof.search.iterations == 3


@pytest.mark.parametrize(("budget", "left"), [({}, UNITS), ({"time_limit_s": 5.0}, math.inf), ({"iterations": 1}, 0)])
def test_what_a_budget_leaves(budget: dict[str, Any], left: float) -> None:
    case = case_of()
    assert Proof(search_of(case, plan_of(case, 0, 1, 0), **budget)).left == left
    assert Proof(search_of(case, None, **budget)).left == FIRST_UNITS


def test_plans_do_not_count_as_iterations() -> None:
    case = case_of()
    proof = Proof(search_of(case))
    assert not proof.on_plan(plan_of(case, 0, 0, 0))
    slow = proof.search.total_s
    proof.on_plan(plan_of(case, 0, 0, 1))
    assert proof.search.total_s < slow
    assert proof.search.iterations == 0


def test_an_enumeration_ends_at_the_best_plan() -> None:
    case = case_of()
    proof = enumeration(search_of(case, plan_of(case, 0, 0, 0)))
    proof.work()
    assert proof.ends
    assert proof.bound_s == pytest.approx(proof.search.total_s, rel=1e-12)
    best = enumeration(search_of(case, plan_of(case, 0, 0, 1)))
    assert best.search.total_s == pytest.approx(proof.search.total_s, rel=1e-12)


@pytest.mark.parametrize("kind", ["enumeration", pytest.param("solver", marks=needs_solver)])
def test_that_there_is_no_plan_is_proved(kind: str) -> None:
    search = search_of(case_of(hbm=110_000))
    proof = enumeration(search) if kind == "enumeration" else solver(search)
    with pytest.raises(Infeasible, match="however the 3 tables are placed"):
        proof.work()


def solver(search: Search) -> SolverProof:
    shares = all_shares(search.evaluator)
    linear_pieces = linear_pieces_of(search.evaluator, shares.terms)
    assert linear_pieces is not None
    return SolverProof(search, shares, linear_pieces)


@needs_solver
def test_a_run_that_contradicts_the_plan_in_hand_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without any plan, as a presolve that loses them all would make it."""
    case = case_of()
    proof = solver(search_of(case, plan_of(case, 0, 0, 1), iterations=4))
    before, made = proof.bound_s, cp_sat_model.SpaceModel.__init__

    def lost(self: Any, *words: Any, **named: Any) -> None:
        made(self, *words, **named)
        self.model.add_bool_or([])

    monkeypatch.setattr(cp_sat_model.SpaceModel, "__init__", lost)
    proof._turn(plan_of(case, 0, 0, 1), {}, 1.0)
    assert not proof.proven
    assert proof.bound_s == before
