"""What people read: names as they are, full lines, the bound beside the cost, few rows for many devices."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.plans import PARTS, Bound, Plan, diff
from recsmith.reports.text import diff_report, plan_report, show
from recsmith.workloads import Table

ODD = "[bold]a[/b] :smile: \\[x]"


def text_of(renderable: object, capsys: pytest.CaptureFixture[str]) -> str:
    show(renderable)  # pyright: ignore[reportArgumentType]
    return capsys.readouterr().out


def made(rank: int = 0, world: int = 2, name: str = "a", **bound: float | None) -> Plan:
    plan = plan_of(workload(table(name)), cluster(local=world), placed(name, "table_wise", [rank]))
    limit = Bound(**{"value_s": None, "kind": "relaxation", "space": "all types"} | bound)  # pyright: ignore[reportArgumentType]
    return replace(plan, bound=limit, gap=limit.gap(plan.cost.total_s))


def test_a_report_says_what_the_plan_does_costs_and_weighs(capsys: pytest.CaptureFixture[str]):
    text = text_of(plan_report(made(value_s=0.9), "a run"), capsys)
    assert "1 tables, 12.5 KiB of weights on 2 devices: 1 table_wise" in text
    assert "toy:2, 1 GiB a device" in text
    assert "1 s (cost model torchrec, predicted; rank 0 decides: 25% forward compute; 0.0% over the mean)" in text
    assert "900 ms proven, at most 11% above the best" in text
    assert "space: all types" in text
    assert "search   a run" in text
    assert made(value_s=0.9).digest[:16] in text


def test_a_plan_without_a_bound_says_so(capsys: pytest.CaptureFixture[str]):
    assert "bound    none (relaxation)" in text_of(plan_report(made()), capsys)


def test_a_plan_outside_the_space_of_its_bound_says_so(capsys: pytest.CaptureFixture[str]):
    plan = replace(made(value_s=0.9), gap=None)
    assert "900 ms proven, the plan lies outside this space" in text_of(plan_report(plan), capsys)


def test_many_devices_are_summed_up(capsys: pytest.CaptureFixture[str]):
    few, many = (text_of(plan_report(made(world=world)), capsys) for world in (16, 17))
    assert "more" not in few
    assert "… 5 more" in many


def test_a_report_and_a_difference_name_kernels_that_use_host_memory(capsys: pytest.CaptureFixture[str]):
    device = made()
    (whole,) = device.placements
    cached, remote = (replace(whole, compute_kernel=f"fused_uvm{word}") for word in ("_caching", ""))
    plans = [replace(device, placements=(each,)) for each in (cached, remote)]
    texts = [text_of(plan_report(plan), capsys) for plan in (*plans, device)]
    assert "host     1 tables, 12.5 KiB of weights in host memory: 1 fused_uvm_caching at 0.2" in texts[0]
    assert "in host memory: 1 fused_uvm" in texts[1]
    assert "host memory" not in texts[2]
    text = text_of(diff_report(diff(*plans), "x", "y"), capsys)
    assert "table_wise fused_uvm_caching at 0.2 on 0" in text
    assert "table_wise fused_uvm on 0" in text


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


def test_lines_are_whole_when_nobody_watches(capsys: pytest.CaptureFixture[str]):
    space = "word " * 20
    plan = made(value_s=0.9)
    text = text_of(plan_report(replace(plan, bound=replace(plan.bound, space=space))), capsys)
    assert space.strip() in text
    assert "\x1b" not in text


def test_tables_that_come_or_go_have_a_dash(capsys: pytest.CaptureFixture[str]):
    text = text_of(diff_report(diff(made(name="a"), made(name="b")), "x", "y"), capsys)
    assert text.split("\n")[-4].split()[:3] == ["b", "-", "table_wise"]
    assert text.split("\n")[-3].split()[-3:] == ["-", "0", "B"]


def test_a_slower_plan_is_told_from_a_faster_one(capsys: pytest.CaptureFixture[str]):
    plan = made()
    slow = replace(plan, cost=replace(plan.cost, total_s=1.5))
    assert "(+50.00%)" in text_of(diff_report(diff(plan, slow), "x", "y"), capsys)
    assert "(-33.33%)" in text_of(diff_report(diff(slow, plan), "x", "y"), capsys)
    assert "50.0% over the mean" in text_of(plan_report(slow), capsys)


def test_a_step_of_no_seconds_is_reported(capsys: pytest.CaptureFixture[str]):
    plan = made(value_s=0.0)
    parts = dict.fromkeys(PARTS, 0.0)
    idle = tuple(replace(device, **parts) for device in plan.cost.per_device)
    plan = replace(plan, cost=replace(plan.cost, total_s=0.0, per_device=idle))
    assert "rank 0 decides: 0% forward compute; 0.0% over the mean" in text_of(plan_report(plan), capsys)
    assert "(+0.00%)" in text_of(diff_report(diff(plan, plan), "x", "y"), capsys)
