"""Which shares are left out, held against the definition, pair by pair."""

from typing import Any

import numpy as np
import pytest
from support.cases import BOTH, Case, cluster, seeded, small_case, table, workload

from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.layouts import Shares, all_shares
from recsmith.problems import Space


def demands(shares: Shares) -> np.ndarray:
    return np.hstack([shares.terms, shares.head, shares.tail])


def no_more(shares: Shares, one: int, other: int) -> bool:
    """Whether a share demands no more of anything than another one, on all targets where that may be."""
    mine, theirs = shares.layouts[shares.layout[one]], shares.layouts[shares.layout[other]]
    same = (mine.table, mine.coverage, shares.columns[one]) == (theirs.table, theirs.coverage, shares.columns[other])
    reaches = mine.shared_width in (None, theirs.shared_width) and set(theirs.targets) <= set(mine.targets)
    return same and reaches and bool((demands(shares)[one] <= demands(shares)[other] * (1 + 1e-12)).all())


@pytest.mark.parametrize("model", BOTH)
def test_a_share_is_left_out_only_for_one_that_demands_no_more(model: str) -> None:
    dropped = 0
    for seed in range(6):
        case = small_case(seeded(seed), models=(model,))
        shares = all_shares(case.evaluator)
        useful = useful_shares(case.evaluator, shares)
        left = {_key(useful, s) for s in range(len(useful.layout))}
        for share in range(len(shares.layout)):
            if _key(shares, share) not in left:
                dropped += 1
                others = (s for s in range(len(shares.layout)) if _key(shares, s) in left)
                assert any(no_more(shares, other, share) for other in others)
        for one in range(len(useful.layout)):
            rivals = np.flatnonzero((useful.layout == useful.layout[one]) & (np.arange(len(useful.layout)) != one))
            assert not any(no_more(useful, int(other), one) for other in rivals)
    assert dropped > 10


def _key(shares: Shares, share: int) -> tuple[int, range, object, int, int]:
    layout = shares.layouts[shares.layout[share]]
    return layout.mode, layout.targets, layout.shared_width, int(shares.width[share]), int(shares.count[share])


def test_one_wide_piece_stands_for_two_narrow_ones() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("column_wise",)), cost_model="analytic")
    useful = useful_shares(case.evaluator, all_shares(case.evaluator))
    assert sorted(zip(useful.width.tolist(), useful.count.tolist(), strict=True)) == [(4, 1), (8, 1)]


def test_a_group_that_can_do_nothing_more_is_left_out() -> None:
    """column_wise may do all that table_wise does; it stays, with its widths."""
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("table_wise", "column_wise")))
    useful = useful_shares(case.evaluator, all_shares(case.evaluator))
    assert len({layout.group for layout in useful.layouts}) == 1
    assert set(useful.columns.tolist()) == {4, 8}


def test_of_shares_that_demand_the_same_one_is_left() -> None:
    case = Case(workload(table("a", 100, 8)), cluster(2), Space(types=("column_wise",)))
    one = all_shares(case.evaluator)
    fields: Any = (one.layout, one.width, one.count, one.terms, one.head, one.tail)
    twice = Shares(one.layouts, *(each.repeat(2, axis=0) for each in fields))
    useful = useful_shares(case.evaluator, twice)
    assert sorted(useful.columns.tolist()) == sorted(useful_shares(case.evaluator, one).columns.tolist()) == [4, 8]
