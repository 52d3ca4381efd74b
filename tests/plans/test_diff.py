"""Differences between plans: which tables are placed differently, and the weights that must travel."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import cluster, placed, plan_of, table, workload

from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch
from recsmith.plans import Cache, Placement, Plan, diff
from recsmith.sharding import SHARDING_TYPES, Span
from recsmith.workloads import Table

ROWS, DIM = 10, 32
ELEMENTS = ROWS * DIM
MACHINES = cluster(hosts=2, local=2)


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
    other = replace(before, workload=replace(before.workload, batch_size=7), cost_model="other")
    said = diff(before, other).other_problem
    assert [words.split(" differ")[0] for words in said] == ["batch_size", "cost models"]
