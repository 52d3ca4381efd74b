"""The exact planner finds the least of all plans, by solver and by enumeration; its bounds hold however soon it ends.

Tests of the solver need OR-Tools, which the `solve` extra installs; how work is counted is tested without.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
from support.cases import (
    BOTH,
    BruteForce,
    Case,
    all_placements,
    brute_force,
    check_plan,
    cluster,
    make_case,
    medium_case,
    seeded,
    small_case,
    table,
    under,
    workload,
)

from recsmith.bounds import lower_bound
from recsmith.costs import COST_MODELS, AdditiveEvaluator, Plane
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, UsageError
from recsmith.files import dump_json, parse
from recsmith.planners import exact
from recsmith.planners.exact import FIRST_UNITS, UNITS, EnumerationProof, Proof, SolverProof
from recsmith.planners.protocol import Budget, Search
from recsmith.planners.solver import cp_sat_model, is_installed
from recsmith.planners.solver.enumeration import Enumeration, arrangements_of
from recsmith.planners.solver.layouts import all_shares, useful_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planning.simulate import simulate
from recsmith.plans import plan_from_raw, plan_to_raw
from recsmith.problems import Footprint, Space, footprint_of

SEEDS = range(100, 112)  # at 100, presolve of OR-Tools 9.15 loses all plans where it may lose some
METHODS = ("solver", "enumeration")
WHOLE = Space(types=("table_wise",))
THREE = Case(workload(*(table(f"t{i}", 1000, 16) for i in range(3))), cluster(2, hbm=110_000), WHOLE)
needs_solver = pytest.mark.skipif(not is_installed(), reason="needs the extra `solve`")


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With OR-Tools, and as if it were not installed."""
    if request.param == "solver":
        pytest.importorskip("ortools")
    else:
        monkeypatch.setattr(exact, "is_installed", lambda: False)
    return request.param


@cache
def known(seed: int, model: str) -> tuple[Case, BruteForce]:
    case = small_case(seeded(seed), models=(model,))
    return case, brute_force(case)


@cache
def known_five(seed: int, model: str) -> tuple[Case, BruteForce]:
    """Five narrow tables on two ranks, with few enough plans to list."""
    for again in count(100 * seed):
        pick = seeded(again)
        case = under(pick, make_case(pick, counts=(5,), dims=(4, 8), shapes=((2, 1), (1, 2))), (model,))
        if math.prod(len(placements) for placements in all_placements(case).values()) < 50_000:
            return case, brute_force(case)
    raise AssertionError


# --- the best of all plans ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("model", BOTH)
def test_it_equals_brute_force(method: str, model: str, chunk: int) -> None:
    for case, every in [*(known(seed, model) for seed in SEEDS[chunk::4]), known_five(chunk, model)]:
        if every.least_s is None:
            with pytest.raises(Infeasible, match=r"Proved(\.|: no plan)"):
                case.plan("exact")
            continue
        found = case.plan("exact").plan
        check_plan(case, found)
        assert every.holds(found)
        assert found.cost.total_s == pytest.approx(every.least_s, rel=1e-9)
        assert found.bound.value_s is not None
        assert every.least_s * (1 - 2e-7) <= found.bound.value_s <= every.least_s * (1 + 1e-12)


@pytest.mark.parametrize("model", BOTH)
def test_bounds_hold_however_soon_an_enumeration_ends(model: str) -> None:
    cut_short = 0
    for seed in SEEDS:
        case, every = known(seed, model)
        evaluator = case.evaluator
        shares = useful_shares(evaluator, all_shares(evaluator))
        ways = arrangements_of(case.problem, shares, 10_000)
        assert ways is not None
        tree = Enumeration(evaluator, shares, ways, math.inf, monotone=True)
        for _ in range(4):
            cut_short += bool(tree.open)
            assert tree.bound <= (every.least_s or math.inf) * (1 + 1e-9)
            tree.run(2, lambda found: False)
    assert cut_short > len(SEEDS)


def test_the_whole_space_holds_no_better_plan_than_its_useful_part() -> None:
    searched = 0
    for seed in SEEDS:
        case, every = known(seed, "analytic")
        shares = all_shares(case.evaluator)
        ways = arrangements_of(case.problem, shares, 10_000)
        if ways is not None:
            tree = Enumeration(case.evaluator, shares, ways, math.inf, monotone=True)
            tree.run(10**6, lambda found: False)
            assert tree.best_s == pytest.approx(every.least_s or math.inf, rel=1e-9)
            searched += every.least_s is not None
    assert searched > len(SEEDS) / 3


def test_splits_that_no_other_planner_tries_count() -> None:
    """88 columns on 11 ranks of 8 columns each, to the last byte: searches try 10 and 12 pieces."""
    pytest.importorskip("ortools")
    wide = Case(workload(table("a", 1000, 88)), cluster(11, hbm=2**30), Space(types=("column_wise",)))
    head, _ = wide.problem.memory(np.array([0]), np.array([8]))
    tight = replace(wide, cluster=cluster(11, hbm=int(head.device[0])))
    with pytest.raises(NoPlanFound):
        tight.plan("auto")
    assert tight.plan("exact").plan.placements[0].widths == (8,) * 11


# --- proofs and their limits ----------------------------------------------------------------------------------------


def test_it_proves_that_tables_fit_in_total_but_not_each_somewhere(method: str) -> None:
    """Three tables of two thirds of a device each, on two devices and then on three."""
    with pytest.raises(NoPlanFound):
        THREE.plan("auto")
    with pytest.raises(Infeasible, match="however the 3 tables are placed, with table_wise") as caught:
        THREE.plan("exact")
    assert "Proved. Checked to work: --hbm 0.1GiB; or 4 devices (2 hosts)" in str(caught.value)
    assert replace(THREE, cluster=cluster(3, hbm=110_000)).plan("exact").plan.gap == pytest.approx(0.0, abs=1e-6)


def test_it_finds_a_plan_where_auto_finds_none(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*words: Any, **named: Any) -> None:
        raise NoPlanFound("lost")

    monkeypatch.setattr(exact.Auto, "plan", lost)
    case, every = known(105, "analytic")
    assert case.plan("exact").plan.cost.total_s == pytest.approx(every.least_s, rel=1e-9)
    check_plan(case, case.plan("exact", time_limit_s=1e-9).plan)  # the first plan is due however little time there is


def test_a_search_without_work_proves_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "FIRST_UNITS", 0)
    monkeypatch.setattr(exact, "NODES", 0)
    with pytest.raises(NoPlanFound, match="none was proved impossible"):
        THREE.plan("exact")


def test_what_the_solver_finds_and_proves_is_the_same_again() -> None:
    pytest.importorskip("ortools")
    case = medium_case(seeded(9), models=("torchrec",), counts=(8,))
    one, other = (case.plan("exact", iterations=4) for _ in range(2))
    assert (one.plan, one.iterations) == (other.plan, other.iterations)
    assert one.iterations > 1
    assert one.plan.bound.searched


def test_a_proven_bound_is_read_back_from_a_file_for_the_plan_it_belongs_to() -> None:
    pytest.importorskip("ortools")
    case, _ = known(100, "analytic")
    plan = replace(case, space=replace(case.space)).plan("exact").plan
    loaded = plan_from_raw(parse(dump_json(plan_to_raw(plan)), "plan"), "plan")
    assert plan.bound.searched
    assert simulate(loaded) == plan
    assert not simulate(replace(loaded, cost=replace(loaded.cost, total_s=1.0))).bound.searched
    assert not simulate(loaded, "torchrec").bound.searched


# --- what it refuses ------------------------------------------------------------------------------------------------


def test_without_the_solver_only_small_problems_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "is_installed", lambda: False)
    many = Case(workload(*(table(f"t{i}", 100, 8) for i in range(13))), cluster(2))
    wide = Case(workload(table("a", 100, 128)), cluster(8))
    for case in (many, wide):
        with pytest.raises(MissingExtra, match=r"more than 12 tables and 20,000 ways.*pip install 'ortools>=9.12,<10'"):
            case.plan("exact")


def test_large_problems_are_refused() -> None:
    case = Case(workload(*(table(f"t{i}", 100, 256) for i in range(16))), cluster(8, 8))
    with pytest.raises(UsageError, match=r"up to 60,000 choices.* has 65,536: use planner auto, or widths torchrec"):
        case.plan("exact")


def test_narrow_problems_may_have_many_tables() -> None:
    pytest.importorskip("ortools")
    case = Case(workload(*(table(f"t{i}", 100, 256) for i in range(16))), cluster(8), Space(widths="torchrec"))
    assert case.plan("exact", iterations=1).iterations == 1


# --- other cost models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bent(AdditiveEvaluator):
    """Neither convex nor monotone: the second table of a rank may make it faster."""

    additive: bool = False
    bend: Callable[[Any], Any] = np.sin
    given: tuple[Plane, ...] = ()

    @property
    def planes(self) -> tuple[Plane, ...]:
        return self.given

    def head(self, sums: Any) -> Any:
        return sums * (1.5 + self.bend(sums * 3e7))

    def loads(self, sums: Any) -> Any:
        return self.head(sums).sum(axis=-1)[None]


@pytest.mark.parametrize("bend", [np.sin, np.sign, np.tanh])
def test_cost_models_without_planes_are_enumerated(bend: Callable[[Any], Any]) -> None:
    for seed in SEEDS[:8]:
        case, _ = known(seed, "torchrec")
        plain = COST_MODELS["torchrec"].compile(case.problem)
        assert isinstance(plain, AdditiveEvaluator)
        evaluator = Bent(case.problem, plain.seconds, bend=bend)
        bent = replace(case)
        bent.__dict__.update(problem=case.problem, evaluator=evaluator)
        least = brute_force(bent).least_s
        if least is not None:
            found = exact.Exact().plan(case.problem, evaluator)
            assert found.total_s == pytest.approx(least, rel=1e-9)
            assert found.bound is not None
            assert found.bound.value_s == pytest.approx(least, rel=1e-9)


def test_faces_are_refused_where_they_do_not_add_up_to_the_cost() -> None:
    case, _ = known(100, "torchrec")
    evaluator = case.evaluator
    assert isinstance(evaluator, AdditiveEvaluator)
    terms = all_shares(evaluator).terms
    assert linear_pieces_of(evaluator, terms) is not None
    bent = Bent(evaluator.problem, evaluator.seconds)
    assert linear_pieces_of(bent, terms) is None
    assert linear_pieces_of(replace(bent, given=evaluator.planes), terms) is None


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
    return Search(case.evaluator, Budget(**budget), start)


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
