"""Tables placed again, one by itself or several together."""

import numpy as np
import pytest
from support.searched import begun, heap, lopsided

from recsmith.costs import step_seconds
from recsmith.planners.search.table_changes import COPIES, replace_several, replace_table


def test_one_table_is_placed_again_where_the_score_falls_most() -> None:
    plan, options = begun(lopsided())
    assert replace_table(plan, options, 0)
    assert plan.score_now() < plan.goal(0)
    made, before = plan.copies.assignment(0), heap(lopsided())
    assert made.complete
    moved = [t for t in range(12) if (made.target[made.table == t] != 0).any()]
    assert len(moved) == 1
    assert (made.option != before.option).sum() <= 1


def test_a_rank_without_tables_has_nothing_to_place_again() -> None:
    plan, options = begun(lopsided(("table_wise",)))
    plan.copies.free[0, 1:] = 0
    assert not replace_table(plan, options, 0)
    assert (plan.copies.assignment(0).target == 0).all()


def test_the_best_copy_is_complete_and_costs_what_it_says() -> None:
    case = lopsided()
    plan, options = begun(case)
    better = replace_several(plan, options, [0], np.random.default_rng(0))
    assert better is not None
    made = better.assignment(0)
    assert made.complete
    assert len(plan.copies.option) == 1 < COPIES
    assert float(better.totals()[0]) == pytest.approx(step_seconds(case.evaluator, made.footprint(case.problem)))
    assert float(better.totals()[0]) < float(plan.copies.totals()[0])


def test_without_room_elsewhere_no_copy_is_better() -> None:
    plan, options = begun(lopsided(("table_wise",)))
    plan.copies.free[0, 1:] = 0
    assert replace_several(plan, options, [0], np.random.default_rng(0)) is None
