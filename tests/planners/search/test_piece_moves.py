"""Moves and swaps of pieces."""

import numpy as np
from support.cases import Case, cluster, table, workload
from support.searched import begun, heap, lopsided

from recsmith.planners.search.piece_moves import move_or_swap
from recsmith.problems import Space


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
