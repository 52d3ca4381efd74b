"""Arrangements are all placements of a table that differ on some rank, with what each puts there.

The enumeration finds the least of all plans, its bound rises to it, and equal ranks are tried once.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import numpy as np
import pytest
from support.cases import (
    BOTH,
    Case,
    all_placements,
    brute_force,
    cluster,
    seeded,
    slow_memory,
    small_case,
    table,
    workload,
)

from recsmith.costs import step_seconds
from recsmith.planners.solver.enumeration import Arrangements, Enumeration, _fillings, arrangements_of
from recsmith.planners.solver.layouts import Shares, all_shares, useful_shares
from recsmith.problems import Footprint, Space, fits, footprint_of, placements_of
from recsmith.sharding.coverage import covering_target, first_rank

CASES = [small_case(seeded(seed), models=("analytic",)) for seed in range(8)]
SEEDS = range(100, 108)


def placed(case: Case, shares: Shares, share: list[int]) -> tuple:
    """The (mode, pieces by target and width) of shares on ranks."""
    held = [(s, rank) for rank, s in enumerate(share) if s < len(shares.layout)]
    pieces: Counter[tuple[int, int]] = Counter()
    for s, rank in held:
        coverage = shares.layouts[shares.layout[s]].coverage
        target = int(covering_target(np.array(rank), coverage))
        if first_rank(target, coverage) == rank:
            pieces[target, int(shares.width[s])] += int(shares.count[s])
    return shares.layouts[shares.layout[held[0][0]]].mode, frozenset(pieces.items())


@pytest.mark.parametrize("case", CASES)
def test_they_are_the_placements_of_brute_force(case: Case) -> None:
    shares = all_shares(case.evaluator)
    every = arrangements_of(case.problem, shares, 100_000)
    assert every is not None
    one = {name: placements[0] for name, placements in all_placements(case).items()}
    for number, arrangements in enumerate(every):
        name = case.problem.tables[number].name
        listed = set()
        for placement in all_placements(case)[name]:
            footprint = footprint_of(case.problem, tuple({**one, name: placement}.values()))
            own = case.problem.modes.table[footprint.mode] == number
            pieces = zip(footprint.target[own].tolist(), footprint.width[own].tolist(), strict=True)
            listed.add((int(footprint.mode[own][0]), frozenset(Counter(pieces).items())))
        found = [placed(case, shares, row) for row in arrangements.share.tolist()]
        assert set(found) == listed
        assert len(found) == len(listed)


def test_they_weigh_what_their_shards_do() -> None:
    for case in CASES:
        shares = all_shares(case.evaluator)
        every = arrangements_of(case.problem, shares, 100_000)
        assert every is not None
        chosen = [number * 7 % len(arrangements.group) for number, arrangements in enumerate(every)]
        placements = placements_of(case.problem, _footprint(case, shares, every, chosen))
        device, host = slow_memory(case, placements)
        assert np.sum([a.device[row] for a, row in zip(every, chosen, strict=True)], axis=0).tolist() == device
        assert np.sum([a.host[row] for a, row in zip(every, chosen, strict=True)], axis=0).tolist() == host


def _footprint(case: Case, shares: Shares, every: list[Arrangements], chosen: list[int]):
    share, target = [], []
    for arrangements, row in zip(every, chosen, strict=True):
        for rank, s in enumerate(arrangements.share[row].tolist()):
            if s < len(shares.layout) and rank % shares.layouts[shares.layout[s]].coverage == 0:
                share.append(s)
                target.append(rank // shares.layouts[shares.layout[s]].coverage)
    return shares.footprint(case.problem, np.array(share), np.array(target))


def test_more_than_are_asked_for_are_none() -> None:
    case = CASES[0]
    shares = all_shares(case.evaluator)
    every = arrangements_of(case.problem, shares, 100_000)
    assert every is not None
    count = sum(len(arrangements.group) for arrangements in every)
    assert arrangements_of(case.problem, shares, count) is not None
    assert arrangements_of(case.problem, shares, count - 1) is None


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


def test_fillings_are_all_choices_whose_columns_add_up() -> None:
    draw, seen = Random(1), 0
    for _ in range(300):
        sizes = [(9, 0), *((share, draw.choice((4, 8, 12))) for share in range(draw.randrange(4)))]
        targets, columns = draw.randrange(1, 5), draw.choice((4, 8, 16, 24))
        every = [choice for choice in product(sizes, repeat=targets) if sum(size for _, size in choice) == columns]
        assert list(_fillings(sizes, targets, columns)) == [tuple(share for share, _ in choice) for choice in every]
        seen += len(every)
    assert seen > 300
    assert len(list(_fillings([(1, 0), (0, 64)], 4096, 64))) == 4096  # of a table on one of thousands of ranks
