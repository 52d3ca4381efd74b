"""What people read of two plans: which tables differ, what must move, and what the step costs in each."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.build import made_plan as made
from support.printed import text_of

from recsmith.plans import diff
from recsmith.reports.plans import diff_report, diff_to_raw
from recsmith.workloads import Table

ODD = "[bold]a[/b] :smile: \\[x]"


def test_a_difference_names_tables_and_bytes(capsys: pytest.CaptureFixture[str]):
    text = text_of(diff_report(diff(made(0), made(1)), "x.json", "y.json"), capsys)
    assert "x.json: 1 s" in text
    assert "y.json: 1 s (+0.00%)" in text
    assert "1 differ, 0 are placed alike" in text
    assert "12.5 KiB of weights to other devices" in text
    assert "table_wise on 0" in text
    assert "more" not in text


def test_plans_that_do_not_differ_have_no_table(capsys: pytest.CaptureFixture[str]):
    text = text_of(diff_report(diff(made(), made()), "x", "y"), capsys)
    assert "0 differ, 1 are placed alike" in text
    assert text.count("\n") == 4


def test_long_lists_of_changes_are_cut(capsys: pytest.CaptureFixture[str]):
    tables: list[Table] = [table(f"t{i:03}") for i in range(50)]
    before, after = (
        plan_of(workload(*tables), cluster(), *(placed(each.name, "table_wise", [rank]) for each in tables))
        for rank in (0, 1)
    )
    text = text_of(diff_report(diff(before, after), "x", "y"), capsys)
    assert "t039" in text
    assert "t040" not in text
    assert "… 10 more" in text


def test_names_are_printed_as_they_are_and_never_as_markup(capsys: pytest.CaptureFixture[str]):
    text = text_of(diff_report(diff(made(0, name=ODD), made(1, name=ODD)), ODD, ODD), capsys)
    assert text.count(ODD) == 3


def test_tables_that_come_or_go_have_a_dash(capsys: pytest.CaptureFixture[str]):
    text = text_of(diff_report(diff(made(name="a"), made(name="b")), "x", "y"), capsys)
    assert text.split("\n")[-4].split()[:3] == ["b", "-", "table_wise"]
    assert text.split("\n")[-3].split()[-3:] == ["-", "0", "B"]


def test_a_slower_plan_is_told_from_a_faster_one(capsys: pytest.CaptureFixture[str]):
    plan = made()
    slow = replace(plan, cost=replace(plan.cost, total_s=1.5))
    assert "(+50.00%)" in text_of(diff_report(diff(plan, slow), "x", "y"), capsys)
    assert "(-33.33%)" in text_of(diff_report(diff(slow, plan), "x", "y"), capsys)


def test_plans_of_no_seconds_differ_by_nothing(capsys: pytest.CaptureFixture[str]):
    plan = made()
    idle = replace(plan, cost=replace(plan.cost, total_s=0.0))
    assert "(+0.00%)" in text_of(diff_report(diff(idle, idle), "x", "y"), capsys)


def test_kernels_that_use_host_memory_are_named(capsys: pytest.CaptureFixture[str]):
    (whole,) = made().placements
    cached, remote = (replace(whole, compute_kernel=f"fused_uvm{word}") for word in ("_caching", ""))
    text = text_of(
        diff_report(diff(*(replace(made(), placements=(each,)) for each in (cached, remote))), "x", "y"), capsys
    )
    assert "table_wise fused_uvm_caching at 0.2 on 0" in text
    assert "table_wise fused_uvm on 0" in text


def test_the_data_of_a_difference_is_that_of_the_noun():
    raw = diff_to_raw(diff(made(0), made(1)))
    assert (raw["unchanged"], raw["moved_bytes"], len(raw["changes"])) == (0, 12_800, 1)
