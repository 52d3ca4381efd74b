"""What is split first, and which items remain.

Side by side placements: masks, and dead ends that are no plans.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.costs import cost_model
from recsmith.planners.placing import SPLITS, TRAINED, ColumnSplitRule, Episodes, ItemBatch, items_of
from recsmith.planners.search.device_state import NOWHERE
from recsmith.problems import Problem, Space, build_problem, fits
from recsmith.testing.problems import sample_problems

BOTH = Space(types=("table_wise", "column_wise"), kernels=("fused",))
SPACE = Space(types=("table_wise",), kernels=("fused",))
LARGE = 1000 * 64 * 4


def items(problem: Problem, limit: float = 0.125, extra: float = 1.15) -> ItemBatch:
    found = items_of(problem, cost_model().compile(problem), ColumnSplitRule(limit, extra))
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
def test_draft_and_items_hold_every_column_once(problem: Problem, rule: ColumnSplitRule) -> None:
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


def tight(room: float) -> tuple[Problem, ItemBatch]:
    """Three equal tables on two devices of `room` tables each."""
    work = workload(*(table(f"t{i}", 1000, 64) for i in range(3)), optimizer="sgd", batch_size=1)
    problem = build_problem(work, cluster(hbm=int(room * LARGE)), SPACE)
    found = items_of(problem, cost_model().compile(problem))
    assert found is not None
    return problem, found


def test_a_full_device_is_masked() -> None:
    _, items = tight(1.5)
    episodes = Episodes(items, 2)
    assert episodes.room().all()
    episodes.place(np.array([0, 1]))
    assert episodes.room().tolist() == [[False, True], [True, False]]


def test_a_dead_end_leaves_the_item_out_and_marks_the_episode() -> None:
    _, items = tight(1.5)
    episodes = Episodes(items, 1)
    episodes.place(np.array([0]))
    episodes.place(np.array([1]))
    assert not episodes.room().any()
    assert not episodes.place(np.array([0]))[0]
    assert (episodes.done, episodes.dead.tolist(), episodes.target.tolist()) == (True, [True], [[0, 1, NOWHERE]])


@given(st.sampled_from((1.2, 2.2, 3.5)), st.integers(0, 2**32))
def test_no_sequence_of_devices_ever_exceeds_memory(room: float, seed: int) -> None:
    problem, items = tight(room)
    episodes, random = Episodes(items, 4), np.random.default_rng(seed)
    while not episodes.done:
        episodes.place(random.integers(0, 2, 4))
    assert (episodes.free >= 0).all()
    for target, dead in zip(episodes.target, episodes.dead.tolist(), strict=True):
        draft = items.assignment(target)
        assert draft.complete != dead
        assert dead or fits(problem, draft.footprint(problem))
