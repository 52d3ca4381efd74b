"""The bound by every spread of the heaviest table's columns: never above a plan, and high where one table decides."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import FEW, hand_made, total_of
from support.cases import Case, cluster, drawn, fits, table, workload

from recsmith import problems
from recsmith.bounds import first_bound, lower_bound
from recsmith.bounds.column_spreads import MOST_SPREADS, HeavyTableBound, heavy_table_bound, spreads_of
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.plane_mixes import tightest_mix
from recsmith.bounds.split_table import HeldBeside, covers
from recsmith.bounds.tightening import HEAVY, heaviest_table
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.protocol import Evaluator, RisesBeside
from recsmith.planners import Budget
from recsmith.planning.registry import find_planner
from recsmith.workloads import load_workload

WORK = 400_000_000


def searched(evaluator: Evaluator, below: float, work: int = WORK) -> HeavyTableBound | None:
    search = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, tightest_mix(evaluator))
    if search is not None:
        search.solve(work)
    return search


@FEW
@given(drawn(hand_made, models=("analytic",), counts=(2, 3, 5), dims=(8, 20, 64)), st.floats(1.0, 3.0))
def test_no_hand_made_plan_costs_less(made, reach: float):
    case, placements = made
    assume(fits(case, placements))
    total = total_of(case, placements)
    search = searched(case.evaluator, reach * total)
    if search is not None:
        assert search.bound <= total * (1 + 1e-9)


def learned(seed: int) -> Evaluator:
    """Four tables of random sizes, the first of many ids, under the default cost model of an H100."""
    random = np.random.default_rng(seed)
    tables = [
        table(f"t{i}", int(10 ** random.uniform(3, 7)), int(random.choice([16, 32, 64])),
              pooling_factor=float(np.exp(random.uniform(0, 3))) * (20 if i == 0 else 1))
        for i in range(4)
    ]  # fmt: skip
    made = workload(*tables, batch_size=4096)
    problem = problems.build_problem(made, load_cluster(f"h100:{2 + seed % 3}"), None, problems.Constraints())
    return cost_model("best").compile(problem)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_plan_that_a_search_finds_under_a_learned_model_costs_less(seed: int):
    evaluator = learned(seed)
    total = find_planner("auto").plan(evaluator.problem, evaluator, seed=0, budget=Budget()).total_s
    for below in (1.1 * total, 3 * total):
        search = searched(evaluator, below)
        assert search is not None
        assert search.bound <= total * (1 + 1e-9)
        assert search.bound >= 0.8 * total


def test_what_a_group_holds_beside_a_piece_never_makes_it_cheaper():
    evaluator = learned(0)
    assert isinstance(evaluator, RisesBeside)
    modes = np.flatnonzero(evaluator.problem.modes.coverage == 1)
    terms = evaluator.terms(modes, np.full(len(modes), 8))
    slopes = np.stack([plane.slopes[0] for plane in evaluator.planes])
    alone, beside = terms @ slopes.T, evaluator.beside(terms, terms[0]) @ slopes.T
    assert np.array_equal(evaluator.beside(terms, np.zeros(terms.shape[1])), terms)
    assert (beside >= alone * (1 - 1e-12)).all()
    assert (beside > alone * 1.001).any()
    together = evaluator.loads(terms[:1] + terms)[0] - evaluator.planes[0].opening
    assert (alone[0] + beside <= together[:, None] * (1 + 1e-9)).all()


def test_the_default_gap_of_dlrm_v2_on_eight_h100():
    """Ways to split the table of 100 ids a sample decide: 4 % and not 9 as by prices that take their mean."""
    problem = problems.build_problem(load_workload("dlrm-v2"), load_cluster("h100:8"), None, problems.Constraints())
    evaluator = cost_model("best").compile(problem)
    first = first_bound(evaluator).bound.value_s
    heavy = heaviest_table(evaluator)
    assert first is not None
    assert heavy is not None
    assert heavy.bound > HEAVY * first
    assert lower_bound(evaluator).bound.value_s == pytest.approx(heavy.bound)
    assert 1.683e-3 < heavy.bound < 1.7509e-3
    assert [tuple(4 * each for each in held) for _, held in heavy.promising(1)] == [(32, 32, 32, 32)]


def test_the_bound_only_rises():
    evaluator = learned(2)
    search = searched(evaluator, 1.0, work=0)
    assert search is not None
    before = search.bound
    for _ in range(10):
        search.solve(search.work + 1)
        assert search.bound >= before
        before = search.bound


def test_no_heavy_table_no_search():
    alike = workload(*(table(f"t{i}", 1000, 64) for i in range(6)))
    case = Case(alike, cluster(4), cost_model="analytic")
    assert searched(case.evaluator, 1.0) is None
    single = Case(workload(table("a", 1000, 64)), cluster(1), cost_model="analytic")
    assert heavy_table_bound(single.evaluator, groups_dominated_by_type(single.evaluator), 1.0, None) is None


# --- parts -----------------------------------------------------------------------------------------------------------


def test_spreads_are_all_ways_to_write_the_steps_as_a_sum():
    seconds = np.ones(7)
    found = spreads_of(6, seconds, 2.0, 3)
    every = {tuple(sorted((x for x in way if x), reverse=True)) for way in product(range(7), repeat=3) if sum(way) == 6}
    assert len(found) == len(set(found))
    assert set(found) == every
    seconds[[1, 5]] = 2.0  # too long
    assert spreads_of(6, seconds, 2.0, 3) == [(6,), (4, 2), (3, 3), (2, 2, 2)]
    assert len(spreads_of(64, np.ones(65), 2.0, 64)) > MOST_SPREADS


def test_covers_takes_the_cheapest_pieces():
    cost = np.array([1.0, 3.0, 2.5, np.inf])
    assert covers(cost).tolist() == [0.0, 1.0, 2.0, 2.5, 3.5]


def test_the_most_beside_a_piece_counts_what_fits_alone():
    """Two seconds are left of three; the piece that is worth most a second takes more."""
    seconds = np.array([[1.0, 2.0, 4.0]])
    beside = HeldBeside(np.array([1.0]), np.array([[2, 0, 1]]), seconds)
    price = np.array([[4.0, 2.0, 3.0]])  # of pieces 0, 1 and 2, which take 2, 4 and 1
    assert beside.most(0, price, np.array([0.5, 1.5, 2.0, 3.0, 5.0])).tolist() == [[0.0, 0.0, 3.0, 6.0, 12.0]]
    assert beside.most(0, np.array([[4.0, 20.0, 3.0]]), np.array([3.0, 5.0])).tolist() == [[6.0, 20.0]]
