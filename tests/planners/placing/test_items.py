"""What is split first, and which items remain."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.costs import cost_model
from recsmith.planners.placing import SPLITS, TRAINED, ItemBatch, SplitRule, items_of
from recsmith.problems import Problem, Space, build_problem
from recsmith.testing.problems import sample_problems

BOTH = Space(types=("table_wise", "column_wise"), kernels=("fused",))


def items(problem: Problem, limit: float = 0.125, extra: float = 1.15) -> ItemBatch:
    found = items_of(problem, cost_model().compile(problem), SplitRule(limit, extra))
    assert found is not None
    return found


def widths(problem: Problem, limit: float) -> list[int]:
    found = items(problem, limit)
    return sorted(problem.pieces.width[found.draft.piece].tolist(), reverse=True)


def heavy(hbm: int = 2**40, space: Space = BOTH) -> Problem:
    """One table that costs more than all others together, on two devices."""
    tables = (table("heavy", 10_000, 1024, 500.0), *(table(f"t{i}", 1000, 32, 2.0) for i in range(4)))
    return build_problem(workload(*tables, batch_size=4096, optimizer="sgd"), cluster(hbm=hbm), space)


def test_a_table_that_dominates_is_split_into_equal_pieces_and_others_stay_whole() -> None:
    assert widths(heavy(), 1.0) == [256] * 4 + [32] * 4


def test_nothing_is_split_where_the_limit_is_far() -> None:
    assert widths(heavy(), 10.0) == [1024, 32, 32, 32, 32]


def test_one_device_and_spaces_without_splits_leave_tables_whole() -> None:
    whole = Space(types=("table_wise",), kernels=("fused",))
    assert widths(heavy(space=whole), 0.1) == [1024, 32, 32, 32, 32]
    one = build_problem(heavy().workload, cluster(local=1), BOTH)
    assert len(items(one, 0.1)) == 5


def test_a_table_too_large_for_a_device_is_split_whatever_it_costs() -> None:
    size = 10_000 * 128 * 4
    problem = build_problem(
        workload(table("large", 10_000, 128, 0.1), optimizer="sgd"), cluster(hbm=size * 3 // 4), BOTH
    )
    found = items(problem, 1e9)
    assert len(found) == 2
    assert (found.bytes <= size * 3 // 4).all()


def test_pieces_together_cost_hardly_more_than_the_whole() -> None:
    narrow = table("narrow", 1000, 8, 500.0)  # its cost is its ids', which every piece reads again
    problem = build_problem(workload(narrow, batch_size=4096, optimizer="sgd"), cluster(local=4), BOTH)
    assert len(items(problem, 0.1)) == 1
    assert len(items(heavy(), 1.0, 1.0)) == 5


@given(st.sampled_from(sample_problems()), st.sampled_from(SPLITS + TRAINED))
def test_draft_and_items_hold_every_column_once(problem: Problem, rule: SplitRule) -> None:
    found = items(problem, *rule)
    spread = np.bincount(found.draft.table, weights=problem.pieces.width[found.draft.piece])
    assert (spread == problem.demand.dim).all()
    assert (found.inputs.shape[0], found.work.shape[0]) == (len(found), len(found))
    assert np.isfinite(found.inputs).all()
    assert (found.work >= 0).all()
    assert found.link_s.min() >= 0


def test_sorting_keeps_items_and_their_places_together() -> None:
    found = items(sample_problems()[1])
    seconds = found.work.sum(axis=1)
    back = found.sorted_by(seconds)
    assert (np.diff(back.work.sum(axis=1)) <= 0).all()
    order = np.argsort(-seconds, kind="stable")
    assert (back.row == found.row[order]).all()
    target = np.arange(len(found)) % found.devices
    assert (back.assignment(target).target[back.row] == target).all()
