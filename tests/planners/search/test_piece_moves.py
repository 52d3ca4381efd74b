"""The plan in a round of local search: its slowest ranks, the tables on them, and partners for a swap.

Moves and swaps of pieces.
"""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload
from support.searched import begun, heap, lopsided

from recsmith.planners.search import piece_moves
from recsmith.planners.search.piece_moves import move_or_swap
from recsmith.problems import Space


def test_the_loaded_rank_is_the_slowest_and_holds_the_tables_dearest_first() -> None:
    plan, _ = begun(lopsided())
    assert plan.slowest_ranks() == [0]
    tables = plan.tables_on(0)
    cost = plan.devices.seconds[plan.pieces.piece]
    assert sorted(tables) == list(range(12))
    assert (np.diff(cost[tables]) <= 0).all()
    assert plan.tables_on(1) == []
    assert plan.goal(0) < plan.score == plan.goal(1)
    assert plan.score_now() == pytest.approx(plan.score, rel=1e-12)


def test_whole_world_pieces_are_on_every_rank_and_do_not_move() -> None:
    plan, _ = begun(lopsided(("row_wise",)))
    assert [len(plan.tables_on(rank)) for rank in range(4)] == [12] * 4
    assert not plan.pieces.movable.any()


def test_partners_are_on_other_ranks_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    case = lopsided(("table_wise",))
    draft = heap(case)
    draft.target[:] = np.arange(12) % 4
    plan, _ = begun(case, draft)
    load = np.array([4.0, 3.0, 1.0, 2.0])
    assert plan.pieces.partners(0, load).tolist() == [i for i in range(12) if i % 4]
    monkeypatch.setattr(piece_moves, "MOST_PARTNERS", 4)
    assert plan.pieces.partners(0, load).tolist() == [2, 3, 6, 10]


def test_a_piece_leaves_the_full_rank_and_the_true_score_falls() -> None:
    plan, _ = begun(lopsided(("table_wise",)))
    assert move_or_swap(plan, 0)
    assert plan.score_now() < plan.score
    moved = plan.copies.assignment(0).target
    assert (moved != 0).sum() == 1


def test_where_no_move_helps_pieces_are_swapped() -> None:
    """7 + 5 beside 4 + 4 (in cost): moving makes it worse, swapping 5 or 7 for 4 makes it 11 beside 9."""
    tables = [table(f"t{i}", 1000, 16, float(cost)) for i, cost in enumerate((70, 50, 40, 40))]
    case = Case(workload(*tables), cluster(2), Space(types=("table_wise",)))
    order = [int(each.name[1]) for each in case.problem.tables]
    draft = heap(case)
    draft.target[:] = [0 if i < 2 else 1 for i in order]
    plan, _ = begun(case, draft)
    assert move_or_swap(plan, 0)
    target = dict(zip(order, plan.copies.assignment(0).target.tolist(), strict=True))
    assert {target[0], target[1]} == {target[2], target[3]} == {0, 1}
    plan, _ = begun(case, plan.copies.assignment(0))
    assert not move_or_swap(plan, 0)


def test_memory_forbids_moves() -> None:
    plan, _ = begun(lopsided(("table_wise",)))
    plan.copies.free[0, 1:] = 0
    before = plan.copies.assignment(0).target
    assert not move_or_swap(plan, 0)
    assert np.array_equal(plan.copies.assignment(0).target, before)


def test_host_memory_that_is_over_undoes_the_change() -> None:
    plan, _ = begun(lopsided(("table_wise",)))
    plan.copies.host_free[:] = -1
    assert not move_or_swap(plan, 0)
    assert (plan.copies.assignment(0).target == 0).all()
