"""Prices of tables: a bound for every plan whatever the multipliers, and the relaxation where nothing is limited."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import MEDIUM, ONE_DOZEN, SOME, hand_made, total_of
from support.cases import Case, drawn, fits

from recsmith._types import Bools
from recsmith.bounds.dominated_groups import groups_dominated_by_type
from recsmith.bounds.multipliers import Multipliers, PhaseRanges
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.selection import SelectionLimits
from recsmith.bounds.table_totals import TableTotals
from recsmith.costs.protocol import Evaluator


def _random(draw: np.random.Generator, groups: int, planes: int) -> Multipliers:
    return Multipliers(
        ready_multiplier=float(draw.uniform(0, 3)),
        rest_multiplier=float(draw.uniform(0, 3)),
        byte_price=float(draw.choice([0.0, 1e-15])),
        mix=draw.dirichlet(np.ones(planes), groups),
        plane=int(draw.integers(planes)),
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
        least, constant = prices.least([PhaseRanges((0.0, total), (0.0, rest))] * 8, multipliers)
        assert prices.copies.sum() == len(case.problem.tables)
        assert least.shape == (8, len(prices.copies), evaluator.groups)
        assert np.isinf(least[:, :, dominated]).all()
        if fits(case, placements):
            assert (least.min(axis=2) @ prices.copies + constant <= total * (1 + 1e-9)).all()


@ONE_DOZEN
@given(MEDIUM)
def test_without_limits_tables_cost_what_the_relaxation_says(case: Case) -> None:
    evaluator, planes = case.evaluator, len(case.evaluator.planes)
    mean = Multipliers(1.0, 1.0, 0.0, np.full((evaluator.groups, planes), 1 / planes), 0)
    prices = TablePrices(evaluator, _none(evaluator))
    least, constant = prices.least([PhaseRanges((0.0, 1e9), (0.0, 1e9))], [mean])
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
    least, _ = prices.least([PhaseRanges((0.0, high), (0.0, 1e9)) for high in highs], [mean] * 3)
    assert (least[0] <= least[1] * (1 + 1e-12)).all()
    local = ~prices.costs.worldwide
    barred = np.isinf(least[2][:, local])
    assert barred.all() or (prices.pieces.alone <= 0).any()
