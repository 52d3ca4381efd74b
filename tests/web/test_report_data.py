"""What the report of a plan shows agrees with the plan, and with what fills its memory."""

import math
from dataclasses import replace

import pytest
from support.build import cluster, made_plan, placed, plan_of, table, workload

from recsmith import UsageError, load_cluster, plan, simulate
from recsmith.files import encode
from recsmith.plans import Plan
from recsmith.web.report_data import report_data


@pytest.fixture(scope="module")
def real() -> Plan:
    return plan("dlrm-v2", "h100:2x2", planner="size_greedy").plan


def every_type() -> Plan:
    """One table of each shape of pieces on two hosts of two."""
    tables = [table(name, 1001, 32) for name in ("column", "copies", "grid", "host", "rows", "whole")]
    return plan_of(
        workload(*tables), load_cluster("h100:2x2"),
        placed("column", "column_wise", [3, 0], (20, 12)),
        placed("copies", "data_parallel", [0, 1, 2, 3], kernel="dense"),
        placed("grid", "grid_shard", [2, 3, 0, 1], (16, 16)),
        placed("host", "table_row_wise", [2, 3]),
        placed("rows", "row_wise", [0, 1, 2, 3]),
        placed("whole", "table_wise", [2]),
    )  # fmt: skip


def test_the_pieces_of_every_type_are_the_shards_of_the_plan():
    given = every_type()
    found = set()
    for each in report_data(given).tables:
        for piece in each.pieces:
            ranks = [first + i for first, count in piece.ranks for i in range(count)]
            for i, rank in enumerate(ranks):
                top = 0 if piece.block is None else i * piece.block
                bottom = each.rows if piece.block is None else min(top + piece.block, each.rows)
                found.add((each.name, rank, (top, bottom), piece.columns))
    assert found == {(shard.table, shard.rank, shard.rows, shard.columns) for shard in given.shards()}


@pytest.mark.parametrize("memory", ["real", "torchrec"])
def test_the_parts_of_the_memory_add_up_to_what_the_plan_says(memory: str):
    kernels = {"column": "fused_uvm", "host": "fused_uvm_caching", "whole": "fused_uvm_caching"}
    plain = every_type()
    placements = tuple(
        replace(each, compute_kernel=kernels.get(each.table, each.compute_kernel)) for each in plain.placements
    )
    given = simulate(replace(plain, placements=placements, constraints={"memory": memory}))
    shown = report_data(given)
    assert [sum(device.bytes) for device in shown.memory] == [each.hbm_bytes for each in given.cost.per_device]
    assert [device.capacity for device in shown.memory] == [each.hbm_capacity_bytes for each in given.cost.per_device]
    assert any(device.bytes[shown.memory_parts.index("cache")] for device in shown.memory)
    assert shown.caches is not None
    assert shown.caches.tables == 2
    assert report_data(plain).caches is None


def test_it_shows_what_the_plan_says(real: Plan):
    shown = report_data(real, "mine.json")
    assert (shown.plan.name, shown.plan.digest, shown.plan.gap) == ("mine.json", real.digest, real.gap)
    assert shown.plan.devices == real.cost.per_device
    assert math.isclose(sum(phase.seconds for phase in shown.phases), real.cost.total_s)
    assert all(math.isfinite(each.seconds) and each.ids >= 0 for each in shown.tables)
    assert shown.against is None
    assert encode(shown)["schema"] == "recsmith/report/1"


def test_the_difference_leads_from_the_other_plan_to_this_one(real: Plan):
    other = plan("dlrm-v2", "h100:2x2", planner="size_lookup_greedy").plan
    shown = report_data(real, against=other, other_name="other.json").against
    assert shown is not None
    assert (shown.other.name, shown.other.total_s) == ("other.json", other.cost.total_s)
    assert shown.moved_bytes == sum(change.moved_bytes for change in shown.changes) > 0
    moved = [change.moved_bytes for change in shown.changes]
    assert moved == sorted(moved, reverse=True)
    assert len(shown.changes) + shown.unchanged == len(real.placements)


def test_a_plan_of_other_tables_is_refused():
    with pytest.raises(UsageError, match=r"another workload: 1 tables are only in this plan, 1 only in the other"):
        report_data(made_plan(name="a"), against=made_plan(name="b"))
    wider = plan_of(workload(table("a", 100, 64)), cluster(), placed("a", "table_wise", [0]))
    with pytest.raises(UsageError, match="1 have another shape; give --against a plan of the same tables"):
        report_data(made_plan(name="a"), against=wider)


def test_a_plan_without_a_bound_has_a_report():
    shown = report_data(made_plan())
    assert (shown.plan.bound.value_s, shown.plan.gap) == (None, None)


def test_tables_without_towers_say_so_in_the_file(real: Plan):
    """A field that is left out is undefined in the page, which would call all tables those of one tower."""
    shown = encode(report_data(real))
    assert {table["tower"] for table in shown["tables"]} == {None}


def test_tables_of_towers_say_which():
    plan = plan_of(
        workload(table("a"), table("b")), cluster(2), placed("a", "table_wise", [0]), placed("b", "table_wise", [2])
    )
    assert [each.tower for each in report_data(plan).tables] == [None, None]
    data = report_data(replace(plan, towers=(("a",), ("b",))))
    assert [each.tower for each in data.tables] == [0, 1]
    assert any(note.startswith("Towers: 2, of 1, 1 tables") for note in data.plan.notes)
