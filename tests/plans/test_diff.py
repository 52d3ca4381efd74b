"""Differences between plans: which tables are placed differently, and the weights that must travel."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import cluster, placed, plan_of, table, workload

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.plans import Cache, Placement, Plan, diff
from recsmith.plans.diff import moved_bytes, with_columns_kept
from recsmith.sharding import SHARDING_TYPES, Span
from recsmith.workloads import Feature, Table

ROWS, DIM = 10, 32
ELEMENTS = ROWS * DIM
MACHINES = cluster(hosts=2, local=2)
WORLD = 4
ONE_TABLE, ONE_HOST = workload(table("a", ROWS, DIM)), cluster(local=WORLD)
CUTS = ((32,), (16, 16), (24, 8), (8, 8, 16), (8, 8, 8, 8))


def one(kind: str, ranks: list[int], widths: tuple[int, ...] = (), kernel: str = "fused", **rest: Any) -> Plan:
    """A plan of one table of 10 x 32 elements on 2 hosts of 2 ranks."""
    kernel = "dense" if kind == "data_parallel" else kernel
    work = workload(table("a", ROWS, DIM, **rest))
    return plan_of(work, MACHINES, placed("a", kind, ranks, widths, kernel))


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("before", "after", "elements"),
    [
        pytest.param(one("table_wise", [0]), one("table_wise", [3]), ELEMENTS, id="a whole table moves"),
        pytest.param(one("table_wise", [0]), one("column_wise", [0]), 0, id="only the type's name changes"),
        pytest.param(
            one("table_wise", [0]), one("column_wise", [0, 1], (16, 16)), ELEMENTS // 2, id="half its columns leave"
        ),
        pytest.param(one("table_wise", [0]), one("column_wise", [0, 1], (24, 8)), ELEMENTS // 4, id="8 of 32 leave"),
        pytest.param(
            one("column_wise", [0, 1], (8, 24)), one("column_wise", [0, 1], (24, 8)), ROWS * 16, id="the cut moves"
        ),
        pytest.param(
            one("column_wise", [0, 1], (16, 16)), one("column_wise", [1, 0], (16, 16)), ELEMENTS, id="pieces swap"
        ),
        pytest.param(
            one("column_wise", [2, 2], (16, 16)), one("table_wise", [2]), 0, id="two pieces of a rank become one"
        ),
        pytest.param(one("table_wise", [0]), one("data_parallel", ALL), 3 * ELEMENTS, id="W - 1 copies are made"),
        pytest.param(one("data_parallel", ALL), one("table_wise", [3]), 0, id="copies are dropped"),
        pytest.param(one("data_parallel", ALL), one("row_wise", ALL), 0, id="copies are cut to blocks"),
        pytest.param(one("table_wise", [0]), one("row_wise", ALL), 7 * DIM, id="rank 0 keeps its 3 of 10 rows"),
        pytest.param(one("table_wise", [3]), one("row_wise", ALL), 9 * DIM, id="rank 3 keeps the last row"),
        pytest.param(one("table_row_wise", [0, 1]), one("table_row_wise", [2, 3]), ELEMENTS, id="another host"),
        pytest.param(one("row_wise", ALL), one("table_row_wise", [0, 1]), 2 * DIM + 4 * DIM, id="world to host"),
        pytest.param(
            one("table_wise", [0], data_type="int8"), one("table_wise", [1], data_type="int8"), ELEMENTS / 4, id="int8"
        ),
    ],
)
def test_moved_bytes_are_the_weights_that_a_rank_did_not_hold(before: Plan, after: Plan, elements: float):
    change = diff(before, after)
    assert [each.table for each in change.changes] == ["a"]
    assert change.moved_bytes == change.changes[0].moved_bytes == elements * 4
    assert change.unchanged == 0


def test_equal_plans_do_not_differ():
    made = one("row_wise", ALL)
    change = diff(made, made)
    assert (change.changes, change.unchanged, change.moved_bytes) == ((), 1, 0)
    assert (change.before_s, change.after_s) == (1.0, 1.0)


def test_a_kernel_that_changes_moves_nothing_but_is_named():
    change = diff(one("row_wise", ALL), one("row_wise", ALL, kernel="fused_uvm"))
    assert [each.table for each in change.changes] == ["a"]
    assert change.moved_bytes == 0


def test_a_cache_that_grows_moves_nothing_but_is_named():
    small, large = (
        replace(placed("a", "table_wise", [0], kernel="fused_uvm_caching"), cache=Cache(load_factor=factor))
        for factor in (0.2, 0.5)
    )
    before, after = (plan_of(workload(table("a", ROWS, DIM)), MACHINES, each) for each in (small, large))
    (change,) = diff(before, after).changes
    assert (change.before, change.after, change.moved_bytes) == (small, large, 0)
    by_default = placed("a", "table_wise", [0], kernel="fused_uvm_caching")
    assert by_default == small  # what FBGEMM does where nothing is said


def test_tables_that_come_or_go_are_changes():
    a, b, c = (table(name, ROWS, DIM) for name in "abc")
    before = plan_of(workload(a, b), MACHINES, placed("a", "table_wise", [0]), placed("b", "table_wise", [0]))
    after = plan_of(workload(b, c), MACHINES, placed("b", "table_wise", [0]), placed("c", "table_wise", [0]))
    gone, come = diff(before, after).changes
    assert (gone.table, gone.after, gone.moved_bytes) == ("a", None, 0)
    assert (come.table, come.before, come.moved_bytes) == ("c", None, ELEMENTS * 4)
    assert diff(before, after).unchanged == 1


@st.composite
def placements(draw: Any) -> Placement:
    """Any legal placement of the one table."""
    kind = draw(st.sampled_from(SHARDING_TYPES))
    pieces = draw(st.integers(2, 2) if kind.name == "grid_shard" else st.integers(1, 4 if kind.splits_columns else 1))
    widths = tuple([DIM // pieces // 4 * 4] * (pieces - 1))
    targets = {Span.RANK: 4, Span.HOST: 2, Span.WORLD: 1}[kind.span]
    chosen = draw(st.lists(st.integers(0, targets - 1), min_size=pieces, max_size=pieces))
    found = placed("a", kind.name, kind.ranks(chosen, MACHINES), (*widths, DIM - sum(widths)), kind.kernels[0])
    return found if legal(table("a", ROWS, DIM), found, MACHINES) else placed("a", "table_wise", [0], (DIM,))


def legal(what: Table, where: Placement, machines: Cluster) -> bool:
    try:
        where.kind.check(what, where.ranks, where.widths, machines)
    except PlanMismatch:
        return False
    return True


def cells(made: Plan) -> set[tuple[int, int, int]]:
    """(rank, row, column) of every element that is held."""
    return {
        (shard.rank, row, column)
        for shard in made.shards()
        for row in range(*shard.rows)
        for column in range(*shard.columns)
    }


@settings(max_examples=60)
@given(placements(), placements())
def test_moved_bytes_count_every_new_element_once(first: Placement, second: Placement):
    work = workload(table("a", ROWS, DIM))
    before, after = plan_of(work, MACHINES, first), plan_of(work, MACHINES, second)
    assert diff(before, after).moved_bytes == 4 * len(cells(after) - cells(before))


# --- plans of different problems -----------------------------------------------------------------------------------


def test_plans_of_one_problem_have_nothing_to_say_of_it():
    assert diff(one("table_wise", [0]), one("row_wise", ALL)).other_problem == ()


def test_other_tables_clusters_and_batches_are_said():
    before = one("table_wise", [0])
    wider = plan_of(
        workload(table("a", ROWS, 2 * DIM), table("b", ROWS, DIM)), cluster(hosts=1, local=2),
        placed("a", "table_wise", [0]), placed("b", "table_wise", [1]),
    )  # fmt: skip
    tables, clusters = diff(before, wider).other_problem
    assert tables == "tables differ: 0 only before, 1 only after, 1 of another shape"
    assert clusters.startswith("clusters differ: ")
    busier = [replace(each, features=(Feature(name="f", pooling_factor=7.0),)) for each in before.workload.tables]
    inputs = {"batch_size": 7, "index_dedup": "on", "hot_rows": "in_front", "tables": tuple(busier)}
    other = replace(before, workload=replace(before.workload, **inputs), cost_model="other")
    said = diff(before, other).other_problem
    assert said[0] == "1 table of the same shape has other features, access or settings"
    assert [words.split(" differ")[0] for words in said[1:]] == ["batch_size", "hot_rows", "index_dedup", "cost models"]


@st.composite
def column_placements(draw: st.DrawFn) -> Placement:
    widths = draw(st.permutations(draw(st.sampled_from(CUTS))))
    ranks = draw(st.permutations(range(WORLD)))[: len(widths)]
    return placed("a", "column_wise", ranks, widths if len(widths) > 1 else ())


def moved(before: Placement, after: Placement) -> int:
    received = moved_bytes(plan_of(ONE_TABLE, ONE_HOST, before), [after], ONE_TABLE, ONE_HOST)
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
    before = plan_of(ONE_TABLE, cluster(local=2), placed("a", "row_wise", [0, 1]))
    after = placed("a", "row_wise", [0, 1, 2, 3])
    # Blocks of 5 rows become blocks of 3, 3, 3 and 1: rank 1 lacks rows 3 and 4, ranks 2 and 3 all of theirs.
    assert moved_bytes(before, [after], ONE_TABLE, cluster(local=4))["a"] == [
        (0, 0),
        (1, 2 * DIM * 4),
        (2, 3 * DIM * 4),
        (3, DIM * 4),
    ]


def test_what_stays_as_it_was_is_named_and_no_shard_of_it_is_received() -> None:
    tables = workload(*(table(name, ROWS, DIM) for name in "abc"))
    places = (placed("a", "data_parallel", ALL, (), "dense"), placed("b", "table_wise", [0]))
    before = plan_of(tables, MACHINES, *places, placed("c", "table_wise", [1]))
    after = (*places, placed("c", "table_wise", [2]))
    found = moved_bytes(before, after, tables, MACHINES)
    assert found == {"a": [], "b": [], "c": [(2, 4 * ELEMENTS)]}
    wider = workload(table("a", ROWS, DIM), table("b", ROWS, DIM + 4), table("c", ROWS, DIM))
    assert moved_bytes(before, after, wider, MACHINES)["b"] == [(0, 4 * ROWS * (DIM + 4))]
    hosts = cluster(hosts=1, local=WORLD)  # row blocks of a host would differ, so nothing is taken for the same
    assert moved_bytes(before, after, tables, hosts)["b"] == [(0, 0)]
