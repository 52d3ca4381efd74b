"""Annealing from a plan that runs: legal, within the limit of what may move, and better the more may move."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

import recsmith
from recsmith import Plan
from recsmith.costs import step_seconds
from recsmith.planners.annealing import kernel
from recsmith.planners.annealing.warm_start import OriginalPlacements, anneal_warm
from recsmith.plans.diff import moved_bytes, with_columns_kept
from recsmith.problems import Footprint, Space, fits, footprint_of, placements_of
from recsmith.problems.footprint import in_space

COMPILED = pytest.mark.skipif(not kernel.is_compiled(), reason="built without a C compiler")
TABLES = workload(
    *(table(f"t{i}", 5_000 * (i + 1), 16 * (1 + i % 9), 1.0 + 3 * (i % 5)) for i in range(24)), batch_size=512
)
CLUSTER = cluster(2, hosts=2)


def case(**fields: object) -> Case:
    return replace(Case(TABLES, CLUSTER, Space(), cost_model="analytic"), **fields)


def old_plan(planner: str = "size_greedy") -> Plan:
    return recsmith.plan(TABLES, CLUSTER, planner=planner, cost_model="analytic").plan


def originals(old: Plan, limit: int) -> OriginalPlacements:
    sizes = {each.name: each.weight_bytes for each in old.workload.tables}
    return OriginalPlacements.of(old, sizes, frozenset(sizes), limit)


def annealed(one: Case, old: Plan, limit: int, start: Footprint | None = None, seed: int = 0) -> Footprint | None:
    begin = footprint_of(one.problem, old.placements) if start is None else start
    return anneal_warm(one.evaluator, begin, begin, originals(old, limit), seed, lambda: True)


def moved(one: Case, old: Plan, found: Footprint) -> int:
    dims = {each.name: each.embedding_dim for each in one.workload.tables}
    before = {each.table: each for each in old.placements}
    kept = [with_columns_kept(p, before[p.table], dims[p.table]) for p in placements_of(one.problem, found)]
    return sum(size for some in moved_bytes(old, kept, one.workload, one.cluster).values() for _, size in some)


@COMPILED
def test_more_that_may_move_makes_better_plans_and_no_more_moves_than_may() -> None:
    """From a plan with copies, whole tables, columns and rows, so that every kind of piece is counted."""
    one, gains = case(), list[float]()
    for old in (old_plan(), old_plan("auto")):
        everything = sum(each.weight_bytes for each in TABLES.tables)
        seconds = [old.cost.total_s]
        for share in (0.01, 0.1, 0.4):
            limit = round(share * everything)
            found = annealed(one, old, limit)
            assert found is not None
            assert moved(one, old, found) <= limit
            assert fits(one.problem, found)
            assert in_space(one.problem, placements_of(one.problem, found))
            seconds.append(step_seconds(one.evaluator, found))
        assert all(after <= 1.01 * before for before, after in pairwise(seconds))
        gains.append(seconds[-1] / seconds[0])
    assert gains[0] < 0.95  # of the greedy plan


@COMPILED
def test_nothing_moves_and_nothing_is_cut_where_nothing_may_move() -> None:
    old = old_plan("auto")
    one = case()
    found = annealed(one, old, 0)
    start = footprint_of(one.problem, old.placements)
    assert found is not None
    for name in ("mode", "width", "target"):
        assert sorted(getattr(found, name).tolist()) == sorted(getattr(start, name).tolist())


@COMPILED
def test_it_is_the_same_again() -> None:
    old, one = old_plan(), case()
    found, again = (annealed(one, old, 10**6) for _ in range(2))
    assert found is not None
    assert again is not None
    assert all(np.array_equal(getattr(found, name), getattr(again, name)) for name in ("mode", "width", "target"))


@COMPILED
def test_a_start_that_asks_for_too_much_memory_comes_to_fit() -> None:
    old = old_plan()
    everything = sum(each.weight_bytes for each in TABLES.tables)
    start = footprint_of(case().problem, old.placements)
    tight = case(cluster=cluster(2, hosts=2, hbm=int(everything * 0.45)))
    crowded = replace(start, target=np.where(tight.problem.modes.coverage[start.mode] == 1, 0, start.target))
    assert not fits(tight.problem, crowded)
    found = annealed(tight, old, everything, crowded)
    assert found is not None
    assert fits(tight.problem, found)


def test_without_compiled_code_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.planners.annealing.warm_start.is_compiled", lambda: False)
    assert annealed(case(), old_plan(), 10**6) is None
