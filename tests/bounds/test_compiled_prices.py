"""Prices of tables in compiled code: those of the array operations, to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import ONE_DOZEN, SOME, hand_made
from support.cases import Case, cluster, drawn, table, workload

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Bools, Floats
from recsmith.bounds import compiled_prices, phase_prices, table_totals
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.dual_feasible import FUNCTIONS
from recsmith.bounds.phase_nodes import Multipliers, PhaseRanges
from recsmith.bounds.phase_prices import TablePrices
from recsmith.errors import UsageError

pytest.importorskip("recsmith.bounds._prices", reason="built without a C compiler")
WIDE = 5_120  # columns: more steps than the dynamic programme takes


def _assert_same(case: Case, seed: int) -> None:
    evaluator, draw = case.evaluator, np.random.default_rng(seed)
    prices = TablePrices(evaluator, np.zeros(evaluator.groups, dtype=bool))
    planes, most = len(bent_planes(evaluator).slopes), float(prices.pieces.alone.max(initial=1e-6))
    ends = np.sort(draw.uniform(0, 1.5 * most, (6, 2, 2)), axis=2)
    ranges = [PhaseRanges((a, b), (c, d)) for (a, b), (c, d) in ends.tolist()]
    made: list[Multipliers] = []
    for i in range(len(ranges)):
        ready, rest = draw.uniform(0, 3, 2).tolist()
        mix = draw.dirichlet(np.ones(planes), evaluator.groups)
        dual = draw.uniform(0, 1, len(FUNCTIONS)) * (draw.uniform(0, 1, len(FUNCTIONS)) < i % 3 / 2)
        steps = draw.choice([0.0, draw.uniform(0, 3)])
        made.append(Multipliers(ready, rest, draw.choice([0.0, 1e-15]), mix, i % planes, dual, steps))
    everything: Bools = np.ones((len(ranges), evaluator.groups), dtype=bool)
    open_: Bools = draw.choice([False, True], (2, len(prices.copies), evaluator.groups))
    which = draw.integers(2, size=len(ranges))

    def found() -> tuple[Floats, Floats]:
        least, _ = prices.least(ranges, made, everything, ~everything)
        return least, prices.selected(least, open_, which)

    compiled_ones = found()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(phase_prices, "is_compiled", lambda: False)
        for mine, theirs in zip(compiled_ones, found(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert not np.isnan(compiled_ones[0]).any()


@ONE_DOZEN
@given(drawn(hand_made, **SOME), st.integers(0, 10**6))
def test_compiled_prices_are_those_of_array_operations(made, seed: int) -> None:
    _assert_same(made[0], seed)


@pytest.mark.parametrize("tables", [3, 12])
def test_few_and_many_tables_of_a_dim_are_covered_alike(tables: int) -> None:
    some = [table(f"t{i}", 1000 + 37 * i, 132, 1.0 + i) for i in range(tables)]
    _assert_same(Case(workload(*some, table("wide", 100, WIDE)), cluster(4)), tables)


@given(st.integers(1, 9), st.integers(1, 41), st.integers(0, 10**6))
def test_compiled_splits_are_those_of_array_operations(modes: int, steps: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cost = draw.choice([np.inf, 1.0, 2.0, 2.5, 7.1], (modes, steps)) * draw.choice([1.0, draw.uniform()], steps)
    size = draw.uniform(0, 9, (modes, steps))
    found = table_totals.least_cost_and_bytes(cost, size)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_totals, "can_split", lambda: False)
        np.testing.assert_array_equal(found, table_totals.least_cost_and_bytes(cost, size))
    assert not np.isnan(found).any()


def test_wrong_lengths_are_refused() -> None:
    native = compiled(compiled_prices.CODE)
    with pytest.raises(UsageError, match=r"another version of recsmith \(33 arrays are needed\); build it again"):
        call_compiled(native.price, ())
    with pytest.raises(UsageError, match="wrong length"):
        call_compiled(native.price, tuple(np.zeros(3) for _ in range(33)))
    with pytest.raises(UsageError, match="wrong length"):
        call_compiled(native.split, (np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(2)))
    with pytest.raises(UsageError, match="wrong length"):
        call_compiled(native.select, (np.zeros(12), np.ones(7, np.int64), np.ones(2, np.int64), np.zeros(4)))
