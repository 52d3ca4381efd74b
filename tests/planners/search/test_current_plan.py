"""The plan in a round of local search: its slowest ranks, the tables on them, and partners for a swap."""

import numpy as np
import pytest
from support.searched import begun, heap, lopsided

from recsmith.planners.search import current_plan


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
    monkeypatch.setattr(current_plan, "MOST_PARTNERS", 4)
    assert plan.pieces.partners(0, load).tolist() == [2, 3, 6, 10]
