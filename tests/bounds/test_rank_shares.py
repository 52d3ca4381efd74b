"""What a rank can hold, and how tables are made of it: as every other way to count says."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import ONE_DOZEN, hand_made
from support.cases import BOTH, Case, cluster, drawn, table, workload

from recsmith._compiled import call_compiled, compiled
from recsmith.bounds import rank_shares
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.rank_shares import Knapsack, RankShares
from recsmith.errors import UsageError

SMALL = {"models": BOTH, "counts": (1, 2, 3), "dims": (4, 8, 20, 64)}
MOST = 23, 7


def shares_of(case: Case) -> RankShares:
    return RankShares(TablePrices(case.evaluator, np.zeros(case.evaluator.groups, dtype=bool)))


def knapsack_of(shares: RankShares) -> Knapsack:
    longest = [
        max(float(np.where(np.isfinite(each), each, 0).max(initial=0)), 1e-9) for each in (shares.ready, shares.rest)
    ]
    return Knapsack(shares, (longest[0] / 9, longest[1] / 3), MOST)


@ONE_DOZEN
@given(drawn(hand_made, **SMALL), st.integers(0, 10**6))
def test_compiled_worth_is_that_of_array_operations(made, seed: int) -> None:
    pytest.importorskip("recsmith.bounds._fillings", reason="built without a C compiler")
    shares = shares_of(made[0])
    knapsack, draw = knapsack_of(shares), np.random.default_rng(seed)
    price = draw.uniform(-0.2, 1, len(shares))
    knapsack.solve(price)
    worth, filling = knapsack.worth.copy(), knapsack.filling(*MOST)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rank_shares, "compiled", lambda _: None)
        knapsack.solve(price)
    np.testing.assert_array_equal(worth, knapsack.worth)
    assert filling == knapsack.filling(*MOST)


@ONE_DOZEN
@given(drawn(hand_made, **SMALL), st.integers(0, 10**6))
def test_a_filling_is_worth_what_is_said_and_no_other_that_fits_is_worth_more(made, seed: int) -> None:
    shares = shares_of(made[0])
    knapsack, draw = knapsack_of(shares), np.random.default_rng(seed)
    price = draw.uniform(0, 1, len(shares))
    knapsack.solve(price)
    cell = int(draw.integers(MOST[0] + 1)), int(draw.integers(MOST[1] + 1))
    filling = knapsack.filling(*cell)
    said = sum(price[share] * count for share, count in filling)
    assert said == pytest.approx(knapsack.worth[cell], rel=1e-12)
    stages = shares.stages()
    for _ in range(20):
        ready = rest = worth = 0
        for stage in draw.permutation(len(stages)).tolist():
            share = int(draw.choice(stages[stage]))
            if ready + knapsack.ready[share] <= cell[0] and rest + knapsack.rest[share] <= cell[1]:
                ready, rest = ready + int(knapsack.ready[share]), rest + int(knapsack.rest[share])
                worth += price[share]
        assert worth <= knapsack.worth[cell] * (1 + 1e-12)


def test_a_table_costs_the_cheapest_way_to_cut_its_columns() -> None:
    shares = shares_of(Case(workload(table("t", 1000, 20, 3.0)), cluster(2), cost_model="analytic"))
    price = np.random.default_rng(5).uniform(0.1, 1, len(shares))
    least, ways = shares.cheapest(price)
    for way in ways:
        assert least[way.table, way.group] == pytest.approx(
            sum(price[share] * count * shares.size[share] for share, count in way.shares)
        )
    group = int(shares.group[0])
    steps = 20 // 4
    listed = [
        sum(price[width - 1] for width in widths if width)
        for widths in product(range(steps + 1), repeat=steps)
        if sum(widths) == steps
    ]
    assert least[0, group] <= min(listed) * (1 + 1e-12)
    if all(way.group != group for way in shares.options):
        assert least[0, group] == pytest.approx(min(listed))


def test_columns_on_one_rank_cost_no_more_in_several_pieces_than_is_said() -> None:
    cost = np.array([[3.0, 5.0, 9.0, 9.5]])
    np.testing.assert_array_equal(rank_shares._closed(cost), [[3.0, 5.0, 8.0, 9.5]])


def test_wrong_lengths_are_refused() -> None:
    module = pytest.importorskip("recsmith.bounds._fillings", reason="built without a C compiler")
    none = np.zeros(0, dtype=np.int64)
    some = np.zeros(1)
    with pytest.raises(UsageError, match="an array has the wrong length"):
        call_compiled(
            module.worth, (np.array([0, 0]), np.array([0, 2]), none, none, none.astype(float), some, some, none)
        )
    assert compiled("bounds._fillings") is module
