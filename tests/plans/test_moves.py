"""Bytes that a job must move from plan to plan, and the order of columns that keeps most of them in place."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import cluster, placed, plan_of, table, workload

from recsmith.plans import Placement
from recsmith.plans.moves import moved_bytes, with_columns_kept

DIM, ROWS, WORLD = 32, 10, 4
WORK, MACHINES = workload(table("a", ROWS, DIM)), cluster(local=WORLD)
CUTS = ((32,), (16, 16), (24, 8), (8, 8, 16), (8, 8, 8, 8))


@st.composite
def column_placements(draw: st.DrawFn) -> Placement:
    widths = draw(st.permutations(draw(st.sampled_from(CUTS))))
    ranks = draw(st.permutations(range(WORLD)))[: len(widths)]
    return placed("a", "column_wise", ranks, widths if len(widths) > 1 else ())


def moved(before: Placement, after: Placement) -> int:
    received = moved_bytes(plan_of(WORK, MACHINES, before), [after], WORK, MACHINES)
    return sum(size for _, size in received["a"])


@given(column_placements(), column_placements())
def test_the_order_of_columns_changes_nothing_but_the_order(old: Placement, new: Placement) -> None:
    kept = with_columns_kept(new, old, DIM)
    pairs = [Counter(zip(each.ranks, each.widths_of(DIM), strict=True)) for each in (kept, new)]
    assert pairs[0] == pairs[1]
    assert (kept.sharding_type, kept.compute_kernel, kept.table) == (new.sharding_type, new.compute_kernel, "a")


@given(column_placements(), st.randoms(use_true_random=False))
def test_the_same_pieces_in_any_order_move_nothing(old: Placement, chance) -> None:
    pieces = list(zip(old.ranks, old.widths, strict=False))
    chance.shuffle(pieces)
    shuffled = placed("a", "column_wise", [rank for rank, _ in pieces], [width for _, width in pieces])
    assert moved(old, with_columns_kept(shuffled if pieces else old, old, DIM)) == 0


@settings(max_examples=50)
@given(st.permutations(range(WORLD)), st.integers(0, 3))
def test_one_of_four_equal_pieces_that_moves_takes_its_own_columns_only(ranks: list[int], goes: int) -> None:
    """Searches name pieces in order of ranks, so that all columns would seem to move."""
    old = placed("a", "column_wise", ranks, (8,) * 4)
    new = sorted(rank if rank != ranks[goes] else ranks[goes - 1] for rank in ranks)
    kept = with_columns_kept(placed("a", "column_wise", new, (8,) * 4), old, DIM)
    assert moved(old, kept) == ROWS * 8 * 4


def test_ranks_beyond_the_old_world_have_nothing() -> None:
    before = plan_of(WORK, cluster(local=2), placed("a", "row_wise", [0, 1]))
    after = placed("a", "row_wise", [0, 1, 2, 3])
    # Blocks of 5 rows become blocks of 3, 3, 3 and 1: rank 1 lacks rows 3 and 4, ranks 2 and 3 all of theirs.
    assert moved_bytes(before, [after], WORK, cluster(local=4))["a"] == [
        (0, 0),
        (1, 2 * DIM * 4),
        (2, 3 * DIM * 4),
        (3, DIM * 4),
    ]
