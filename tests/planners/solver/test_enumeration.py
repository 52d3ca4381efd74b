"""The enumeration finds the least of all plans, its bound rises to it, and equal ranks are tried once."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.cases import BOTH, Case, brute_force, cluster, seeded, small_case, table, workload

from recsmith.costs import step_seconds
from recsmith.planners.solver.arrangements import arrangements_of
from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.enumeration import Enumeration
from recsmith.planners.solver.layouts import all_shares
from recsmith.problems import Footprint, Space, fits

SEEDS = range(100, 108)


@cache
def known(seed: int, model: str) -> tuple[Case, float]:
    case = small_case(seeded(seed), models=(model,))
    least = brute_force(case).least_s
    return case, math.inf if least is None else least


def tree_of(case: Case, best_s: float = math.inf, *, monotone: bool = True) -> Enumeration:
    shares = all_shares(case.evaluator)
    shares = useful_shares(case.evaluator, shares) if monotone else shares
    arrangements = arrangements_of(case.problem, shares, 20_000)
    assert arrangements is not None
    return Enumeration(case.evaluator, shares, arrangements, best_s, monotone=monotone)


@pytest.mark.parametrize("model", BOTH)
def test_plans_get_better_until_the_least(model: str) -> None:
    for seed in SEEDS:
        case, least = known(seed, model)
        tree, totals, bounds = tree_of(case), list[float](), list[float]()

        def on_plan(found: Footprint, case: Case = case, totals: list[float] = totals) -> bool:
            assert fits(case.problem, found)
            totals.append(step_seconds(case.evaluator, found))
            return False

        while tree.open:
            bounds.append(tree.bound)
            tree.run(3, on_plan)
        assert tree.best_s == tree.bound == pytest.approx(least, rel=1e-9)
        assert totals == sorted(totals, reverse=True)
        assert totals[-1:] == ([pytest.approx(least, rel=1e-9)] if math.isfinite(least) else [])
        assert bounds == sorted(bounds)


def test_without_bounds_it_finds_the_same() -> None:
    for seed in SEEDS[:4]:
        case, least = known(seed, "analytic")
        tree = tree_of(case, monotone=False)
        tree.run(10**6, lambda found: False)
        assert tree.best_s == pytest.approx(least, rel=1e-9)


def test_only_better_plans_count() -> None:
    case, least = known(105, "analytic")
    found: list[Footprint] = []
    tree_of(case, least).run(10**6, lambda plan: bool(found.append(plan)))
    assert found == []


def test_a_listener_ends_the_run_and_another_run_goes_on() -> None:
    case, least = known(105, "analytic")
    tree, found = tree_of(case), list[Footprint]()
    tree.run(10**6, lambda plan: found.append(plan) or True)
    assert len(found) == 1
    tree.run(10**6, lambda plan: False)
    assert tree.best_s == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(("hbm", "nodes"), [(2**40, 2), ((2**39, 2**40, 2**40), 3)])
def test_of_equal_ranks_one_is_tried(hbm: int | tuple[int, ...], nodes: int) -> None:
    """The last rank is none of them: it may hold tails."""
    case = Case(workload(table("a", 100, 4)), cluster(3, hbm=hbm), Space(types=("table_wise",)))
    assert len(tree_of(case).open) == nodes


@pytest.mark.parametrize(("room", "fits_them"), [(1.9, False), (2.0, True)])
def test_full_hosts_end_a_partial_plan(room: float, fits_them: bool) -> None:
    """Two tables in host memory that holds 1.9 and 2 of them."""
    space = Space(types=("table_wise",), kernels=("fused_uvm",))
    case = Case(workload(table("a", 100, 4), table("b", 100, 4)), cluster(2, ddr_bytes_per_host=2**40), space)
    size = int(case.problem.memory(np.array([0]), np.array([4]))[1].host[0])
    tree = tree_of(replace(case, cluster=cluster(2, ddr_bytes_per_host=int(size * room))))
    tree.run(10**6, lambda found: False)
    assert math.isfinite(tree.best_s) == fits_them


def test_sequences_of_a_collection_are_split_alike() -> None:
    tables = [table(name, 50, 8, pooling="none", collection="c") for name in "ab"]
    case = Case(workload(*tables), cluster(2), Space(types=("column_wise",)))
    tree = tree_of(case, monotone=False)
    first = [(node, row) for _, node, row in tree.open]
    for node, row in first:
        tree.open.clear()
        tree._branch(tree._extended(node, row))
        width = tree.arrangements[0].shared_width[row]
        assert {tree.arrangements[1].shared_width[other] for _, _, other in tree.open} == {width}
    assert {tree.arrangements[0].shared_width[row] for _, row in first} == {("c", 4), ("c", 8)}
