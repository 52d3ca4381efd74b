"""Prices of tables: a bound for every plan whatever the multipliers, and the relaxation where nothing is limited."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import MEDIUM, ONE_DOZEN, SOME, best_of_whole_tables, hand_made, own_ranges, total_of
from support.cases import Case, cluster, drawn, fits, table, workload

from recsmith._types import Bools
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.dual_feasible import FUNCTIONS
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.phase_nodes import Multipliers, PhaseRanges, stacked
from recsmith.bounds.phase_prices import PIECE_FACTS, LocalPieces, TablePrices, different_tables
from recsmith.bounds.relaxation import Relaxation
from recsmith.bounds.table_totals import TableTotals
from recsmith.clusters import load_cluster
from recsmith.costs.protocol import Evaluator
from recsmith.problems import Space


def _random(draw: np.random.Generator, groups: int, planes: int) -> Multipliers:
    return Multipliers(
        ready_multiplier=float(draw.uniform(0, 3)),
        rest_multiplier=float(draw.uniform(0, 3)),
        byte_price=float(draw.choice([0.0, 1e-15])),
        mix=draw.dirichlet(np.ones(planes), groups),
        plane=int(draw.integers(planes)),
        dual=draw.choice([0.0, 0.0, 1.0], len(FUNCTIONS)) * draw.uniform(0, 1, len(FUNCTIONS)),
        step_multiplier=float(draw.choice([0.0, draw.uniform(0, 3)])),
    )


def _none(evaluator: Evaluator) -> Bools:
    return np.zeros(evaluator.groups, dtype=bool)


@ONE_DOZEN
@given(drawn(hand_made, **SOME), st.integers(0, 10**6))
def test_no_plan_within_the_ranges_costs_less_than_the_prices_of_its_tables(made, seed: int) -> None:
    case, placements = made
    evaluator, draw = case.evaluator, np.random.default_rng(seed)
    total = total_of(case, placements)
    rest = total if evaluator.step_rule.several_phases else 0.0
    multipliers = [_random(draw, evaluator.groups, len(evaluator.planes)) for _ in range(8)]
    for dominated in (_none(evaluator), groups_dominated_by_type(evaluator)):
        prices = TablePrices(evaluator, dominated)
        all_open = np.ones((8, evaluator.groups), dtype=bool)
        least, constant = prices.least([PhaseRanges((0.0, total), (0.0, rest))] * 8, multipliers, all_open, ~all_open)
        assert prices.copies.sum() == len(case.problem.tables)
        assert least.shape == (8, len(prices.copies), evaluator.groups)
        assert np.isinf(least[:, :, dominated]).all()
        if fits(case, placements):
            assert (least.min(axis=2) @ prices.copies + constant <= total * (1 + 1e-9)).all()


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 300), marks=pytest.mark.soak)])
def test_the_best_plan_costs_no_less_than_prices_by_the_seconds_of_its_own_slowest_rank(seeds: range) -> None:
    """Between the ends of ranges and what ranks hold is no room, also in whole steps of width, so errors show."""
    near = stepped = 0
    for seed in seeds:
        draw = np.random.default_rng(seed)
        case, best, total = best_of_whole_tables(draw)
        groups, planes = case.evaluator.groups, len(case.evaluator.planes)
        prices, ranges = TablePrices(case.evaluator, _none(case.evaluator)), own_ranges(case, best, 1 - seed % 3 / 10)
        made: list[Multipliers] = []
        for _ in range(60):
            ready, rest, steps = draw.uniform(0, 2), draw.uniform(0, 2), draw.choice([0.0, 0.5, 1.0])
            mix = np.eye(planes)[draw.integers(planes, size=groups)]
            made.append(Multipliers(ready, rest * (1 - steps), 0.0, mix, 0, step_multiplier=rest * steps))
        everything = np.ones((len(made), groups), dtype=bool)
        least, constant = prices.least([ranges] * len(made), made, everything, everything)
        values = least.min(axis=2) @ prices.copies + constant + prices.costs.certain(everything[0])
        assert (values <= total * (1 + 1e-9)).all()
        near += values.max() > 0.9 * total
        stepped += any(
            value > 0.9 * total and each.step_multiplier > 0 for value, each in zip(values, made, strict=True)
        )
    assert near > len(seeds) / 2
    assert stepped > len(seeds) / 2


def test_columns_that_a_rank_has_no_whole_step_for_cost_more() -> None:
    """Five whole tables of 8 columns on four ranks: one of these has two, whatever the mean says."""
    tables = [table(f"t{i}", 1000 + i, 8, 1.0) for i in range(5)]
    case = Case(workload(*tables), cluster(4), Space(types=("table_wise",)), cost_model="analytic")
    prices = TablePrices(case.evaluator, _none(case.evaluator))
    step, groups = prices.pieces.step_s, case.evaluator.groups
    assert prices.pieces.in_steps == pytest.approx(prices.pieces.rest)
    assert prices.pieces.in_steps == pytest.approx(step)
    mean = Multipliers(0.0, 1.0, 0.0, np.full((groups, prices.mixed), 1 / prices.mixed), 0)
    everything = np.ones((2, groups), dtype=bool)
    both = [mean, mean._replace(rest_multiplier=0.0, step_multiplier=1.0)]

    def bounds(steps: float) -> list[float]:
        ranges = [PhaseRanges((0.0, 1.0), (0.0, steps * step))] * 2
        least, constant = prices.least(ranges, both, everything, ~everything)
        return (least.min(axis=2) @ prices.copies + constant).tolist()

    assert bounds(1.5) == pytest.approx([1.25 * step, 0.25 * step])
    assert bounds(2.0) == pytest.approx([1.25 * step, -0.75 * step])


@ONE_DOZEN
@given(MEDIUM)
def test_without_limits_tables_cost_what_the_relaxation_says(case: Case) -> None:
    evaluator, planes = case.evaluator, len(case.evaluator.planes)
    mean = Multipliers(1.0, 1.0, 0.0, np.full((evaluator.groups, planes), 1 / planes), 0)
    prices = TablePrices(evaluator, _none(evaluator))
    nobody = np.zeros((1, evaluator.groups), dtype=bool)
    least, constant = prices.least([PhaseRanges((0.0, 1e9), (0.0, 1e9))], [mean], ~nobody, nobody)
    relaxed = TableTotals(evaluator).per_table(SelectionLimits()).value / case.cluster.world_size
    assert np.sort(np.repeat(least[0].min(axis=1), prices.copies)) == pytest.approx(np.sort(relaxed), rel=1e-9)
    assert constant.tolist() == [0.0]


@ONE_DOZEN
@given(MEDIUM)
def test_a_narrower_range_is_never_cheaper_and_bars_pieces_that_exceed_it(case: Case) -> None:
    evaluator, planes = case.evaluator, len(case.evaluator.planes)
    prices = TablePrices(evaluator, _none(evaluator))
    mean = Multipliers(1.0, 1.0, 0.0, np.full((evaluator.groups, planes), 1 / planes), 0)
    highs = (1e9, float(np.median(prices.pieces.alone[prices.pieces.fits])) if prices.pieces.fits.any() else 1.0, 0.0)
    nobody = np.zeros((3, evaluator.groups), dtype=bool)
    ranges = [PhaseRanges((0.0, high), (0.0, 1e9)) for high in highs]
    least, _ = prices.least(ranges, [mean] * 3, ~nobody, nobody)
    assert (least[0] <= least[1] * (1 + 1e-12)).all()
    local = ~prices.costs.worldwide
    barred = np.isinf(least[2][:, local])
    assert barred.all() or (prices.pieces.alone <= 0).any()


def _pieces(case: Case) -> LocalPieces:
    evaluator = case.evaluator
    planes = bent_planes(evaluator)
    nothing = np.zeros(evaluator.groups, dtype=bool)
    return LocalPieces(evaluator, Relaxation(evaluator, barred=True), planes.launch, planes, nothing)


def test_pieces_of_some_tables_are_those_of_a_problem_with_no_others() -> None:
    tables = [table(f"t{i}", 1000 + 50 * i, (8, 64, 8, 20)[i], 2.0 + i) for i in range(4)]
    cases = [Case(workload(*mine), load_cluster("h100:2x2"), cost_model="analytic") for mine in (tables, tables[1:3])]
    every, some = map(_pieces, cases)
    assert len(every.key) > 0
    found = every.of(np.array([cases[0].problem.tables.index(each) for each in cases[1].problem.tables]))
    for name in (*PIECE_FACTS, "key", "count", "whole"):
        if name != "modes":
            np.testing.assert_array_equal(getattr(found, name), getattr(some, name), name)
    assert [family.tolist() for family in found.families] == [family.tolist() for family in some.families]
    assert found.numbers == some.numbers < every.numbers
    mix = np.full((some.groups, some.ready.shape[1]), 0.25)
    nodes = stacked([PhaseRanges((0.0, 1.0), (0.0, 1.0))], [Multipliers(1.0, 0.5, 0.0, mix, 0)])
    prices = [each.cheapest(nodes, np.ones(1), np.zeros(1)) for each in (found, some)]
    assert (prices[0] == prices[1]).all()


def _price(pieces: LocalPieces, low: float, high: float) -> float:
    """The price of the only piece for a range of `ready`, at multipliers of 1."""
    nodes = stacked([PhaseRanges((low, high), (0.0, 0.0))], [Multipliers(1.0, 1.0, 0.0, np.ones((1, 1)), 0)])
    ((price,),) = pieces.cheapest(nodes, np.zeros(1), np.zeros(1)).tolist()
    return price


def test_a_piece_that_leaves_no_room_for_another_pays_for_its_whole_rank() -> None:
    """With one table there are only big pieces: beside it no seconds can be used, so its rank costs the least ready."""
    case = Case(workload(table("a", 5000, 8, 10.0)), cluster(2), Space(types=("table_wise",)), cost_model="torchrec")
    pieces = _pieces(case)
    alone = float(pieces.alone[0])
    assert _price(pieces, 0.0, 3 * alone) == pytest.approx(alone)  # small: another could stand beside it
    assert _price(pieces, 1.4 * alone, 1.5 * alone) == pytest.approx(1.4 * alone)
    assert _price(pieces, 0.0, 1.5 * alone) == pytest.approx(alone)
    assert _price(pieces, 0.0, 0.5 * alone) == np.inf


def test_a_piece_that_covers_a_host_pays_for_each_of_its_ranks() -> None:
    space = Space(types=("table_row_wise",))
    pieces = _pieces(Case(workload(table("a", 5000, 8, 10.0)), cluster(2, hosts=2), space, cost_model="torchrec"))
    alone = float(pieces.alone[0])
    assert _price(pieces, 0.0, 3 * alone) == pytest.approx(2 * alone)
    assert _price(pieces, 1.4 * alone, 1.5 * alone) == pytest.approx(2 * 1.4 * alone)


def test_a_piece_that_another_fits_beside_pays_for_itself() -> None:
    """The small table takes a tenth of the range, at the same price a second: nothing of the rank is lost."""
    tables = workload(table("a", 5000, 8, 10.0), table("b", 5000, 8, 1.0))
    pieces = _pieces(Case(tables, cluster(2), Space(types=("table_wise",)), cost_model="torchrec"))
    nodes = stacked([PhaseRanges((0.0, 1.5 * float(pieces.alone.max())), (0.0, 0.0))],
                    [Multipliers(1.0, 1.0, 0.0, np.ones((1, 1)), 0)])  # fmt: skip
    used = pieces.alone[pieces.whole[:, 0]]
    assert pieces.cheapest(nodes, np.zeros(1), np.zeros(1))[0] == pytest.approx(used)


def test_every_width_of_a_table_that_may_be_split_is_a_piece() -> None:
    case = Case(workload(table("a", 100, 20)), cluster(2), Space(types=("column_wise",)), cost_model="analytic")
    pieces = _pieces(case)
    assert [family.shape for family in pieces.families] == [(1, 5)]
    assert pieces.whole.size == 0
    assert pieces.numbers > pieces.ready.size


def test_tables_with_the_same_facts_in_the_same_order_are_one() -> None:
    """Tables 0 and 2 are alike; 1 differs in one number, 3 in the order, 4 has one fact less, and 5 has none."""
    table = np.array([2, 0, 1, 3, 0, 1, 2, 3, 4])
    numbers = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.5, 2.0, 1.0, 1.0])
    first, like = different_tables(6, [(table, numbers[:, None])])
    assert first.tolist() == [0, 1, 3, 4, 5]
    assert np.bincount(like).tolist() == [2, 1, 1, 1, 1]


def test_each_kind_of_facts_counts_by_itself() -> None:
    """What one table has of the first kind, the other has of the second."""
    one, other = np.array([0]), np.array([1])
    first, like = different_tables(2, [(one, np.ones((1, 1))), (other, np.ones((1, 1)))])
    assert first.tolist() == [0, 1]
    assert like.tolist() == [0, 1]
