"""Prices by levels of how full groups are: never above the head, and bounds with them never above a plan."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bounds import check_random_plans
from support.cases import brute_force, seeded, small_case
from support.rising import rising_case

from recsmith._types import Floats, Ints
from recsmith.bounds import lower_bound
from recsmith.bounds.fill_levels import FILLS, PAID, FillLevels, LevelShares, SpreadTables, has_levels
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_prices import TablePrices, levelled_prices, table_prices
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.protocol import Evaluator
from recsmith.problems import build_problem
from recsmith.workloads.sample import shared_pool

WORK = 20_000_000
SEEDS = st.integers(0, 10**6)
MEASURED = [("neural:h100", "h100:4"), ("neural:h200", "h200:8"), ("best", "h100:2x2")]
pytestmark = pytest.mark.filterwarnings("ignore:cost model .*(was trained on simulated|extrapolates)")


@cache
def measured(model: str = "neural:h100", cluster: str = "h100:4", tables: int = 24) -> Evaluator:
    """Sampled tables under a model of a GPU, whose shares are steep."""
    pool = shared_pool()
    some = replace(pool, tables=pool.tables[: 9 * tables : 9], batch_size=16_384)
    return cost_model(model).compile(build_problem(some, load_cluster(cluster)))


def prices_of(evaluator: Evaluator) -> TablePrices:
    return table_prices(evaluator, groups_dominated_by_type(evaluator))


def held_together(prices: TablePrices, draw: np.random.Generator) -> Ints:
    """Pieces of one group on a rank, at most all columns of each table; one table, a few, or many."""
    pieces, group = prices.pieces, draw.choice(prices.pieces.group)
    count = draw.choice([1, 3, len(prices.copies)])
    chosen: list[int] = []
    for table in draw.permutation(len(prices.copies))[:count]:
        mine = np.flatnonzero((pieces.table == table) & (pieces.group == group) & pieces.fits)
        left = draw.choice([0.25, 1.0])
        while len(mine := mine[pieces.columns[mine] <= left + 1e-12]) and draw.random() < 0.9:
            chosen.append(int(draw.choice([mine[-1], draw.choice(mine)])))
            left -= pieces.columns[chosen[-1]]
    return np.array(chosen, dtype=np.int64)


def any_shares(levels: FillLevels, held: Ints, draw: np.random.Generator) -> LevelShares:
    """Shares that add up to 1, most of them on a few planes, and on one way to fill a level or what is held."""
    shares = levels._shares(0.0)
    shares.planes[:] = draw.dirichlet(np.full(levels.planes, 0.2), levels.cells)
    shares.fills[:, :, :FILLS] = np.eye(FILLS)[draw.integers(0, FILLS, levels.cells)]
    if draw.random() < 0.6:
        columns = np.bincount(levels.pieces.table[held], levels.pieces.columns[held], len(levels.copies))
        shares.fills[:] = np.concatenate([np.zeros(FILLS), np.floor(columns + 0.5) + 1e-9])
        shares.fills[:] /= shares.fills.sum(axis=2, keepdims=True)
    return shares


def load_of(evaluator: Evaluator, prices: TablePrices, held: Ints) -> float:
    """Seconds of a group in the first phase."""
    return float(evaluator.loads(prices.pieces.terms[held].sum(axis=0, keepdims=True))[0, 0])


def climbed(evaluator: Evaluator, prices: TablePrices, held: Ints, seconds: Floats, most: float) -> Ints:
    """What a rank holds after some of it was dropped, and more added, while prices gain on the head."""
    pieces = prices.pieces
    mine = np.flatnonzero((pieces.group == pieces.group[held[0]]) & pieces.fits)
    for _ in range(12):
        sums = pieces.terms[held].sum(axis=0)
        columns = np.bincount(pieces.table[held], pieces.columns[held], len(prices.copies))
        add = mine[columns[pieces.table[mine]] + pieces.columns[mine] <= 1 + 1e-12]
        drop = np.arange(len(held)) if len(held) > 1 else np.arange(0)
        tried = np.concatenate([sums + pieces.terms[add], np.maximum(sums - pieces.terms[held[drop]], 0.0)])
        if not len(tried):
            break
        loads = evaluator.loads(tried)[0]
        gain = np.concatenate([seconds[add], -seconds[held[drop]]]) - loads + load_of(evaluator, prices, held)
        gain[loads > most] = -np.inf
        best = int(gain.argmax())
        if gain[best] <= 0:
            break
        held = np.append(held, add[best]) if best < len(add) else np.delete(held, best - len(add))
    return held


@pytest.mark.parametrize(("model", "cluster"), MEASURED)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_pieces_of_a_group_cost_no_more_than_its_head_less_what_they_pay_for(
    model: str, cluster: str, seed: int
) -> None:
    draw, evaluator = np.random.default_rng(seed), measured(model, cluster)
    prices = prices_of(evaluator)
    held, launch = held_together(prices, draw), prices.planes.launch
    if not len(held):
        return
    most = load_of(evaluator, prices, held) * (1 + 1e-12)
    levels = FillLevels(evaluator, most - launch, prices.pieces, prices.copies)
    shares = any_shares(levels, held, draw)
    for paid in (*PAID, 1.0):
        seconds = np.where(prices.pieces.fits, levels._priced(shares, paid).min(axis=1), 0.0)
        for some in (held, climbed(evaluator, prices, held, seconds, most)):
            load = load_of(evaluator, prices, some)
            assert seconds[some].sum() <= (load - (1 - paid) * launch) * (1 + 1e-9)


def test_groups_that_fill_a_level_reach_their_head_nearly() -> None:
    """One piece alone, of which each level is full: all but what shares are rounded by."""
    evaluator, prices = measured(), prices_of(measured())
    heaviest = int(prices.pieces.alone.argmax())
    load, launch = float(prices.pieces.alone[heaviest]), prices.planes.launch
    levels = FillLevels(evaluator, load, prices.pieces, prices.copies)
    shares = levels._shares(0.0)
    shares.fills[:] = np.arange(shares.fills.shape[2]) == FILLS + prices.pieces.table[heaviest]
    shares.planes[:] = np.arange(levels.planes) == prices.pieces.ready[heaviest].argmax()
    assert levels._priced(shares, 1.0).min(axis=1)[heaviest] == pytest.approx(load + launch, rel=5e-3)


def test_what_is_played_raises_the_bound() -> None:
    evaluator = measured("neural:h100", "h100:4", 48)
    dominated, bound = groups_dominated_by_type(evaluator), lower_bound(evaluator).bound.value_s
    assert bound is not None
    plain = PhaseBranching(evaluator, dominated=dominated, below=1.2 * bound, byte_price=0.0)
    plain.solve(1_000_000_000)
    assert bound > 1.015 * plain.bound


def test_without_shares_that_must_rise_there_are_no_levels() -> None:
    assert has_levels(measured())
    assert not has_levels(measured("neural:simulated-h100"))
    assert not has_levels(measured("analytic"))
    assert not has_levels(measured("neural:h100", "h100:1"))


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 600), marks=pytest.mark.soak)])
def test_no_plan_costs_less_than_branching_with_levels_says(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = levelled = 0
    for seed in seeds:
        case = rising_case(small_case(seeded(seed), models=("analytic",)), seed, tmp_path, monkeypatch)
        least, evaluator = brute_force(case).least_s, case.evaluator
        if least is None:
            continue
        assert (lower_bound(evaluator).bound.value_s or 0.0) <= least * (1 + 1e-9)
        asked += 1
        dominated, below = groups_dominated_by_type(evaluator), least * (1 + seed % 3 / 2)
        prices = levelled_prices(evaluator, dominated, below, None) if has_levels(evaluator) else None
        if prices is None:
            continue
        mix = prices.levelled_mix
        search = PhaseBranching(evaluator, dominated=dominated, below=below, byte_price=0.0, mix=mix, prices=prices)
        for work in (0, WORK):
            search.solve(work)
            assert search.bound <= least * (1 + 1e-9)
        levelled += 1
    assert asked > len(seeds) / 3
    assert levelled > asked / 3


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 100), marks=pytest.mark.soak)])
def test_no_random_plan_of_many_tables_costs_less_than_the_bound(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_random_plans(seeds, lambda drawn, seed: rising_case(drawn, seed, tmp_path, monkeypatch))


def test_tables_that_cost_nothing_or_fit_nowhere_leave_prices_that_are_numbers() -> None:
    evaluator, prices = measured(), prices_of(measured())
    levels = FillLevels(evaluator, 1.0, prices.pieces, prices.copies)
    tables = np.arange(len(prices.copies))
    for cost in (0.0, np.inf):
        seconds = levels.seconds(SpreadTables(tables, np.full(len(tables), cost)))
        assert np.isfinite(seconds).all()
        assert (seconds >= 0).all()
