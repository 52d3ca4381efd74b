"""What people read of a plan: the bound beside the cost, few rows for many devices, and what to beware of."""

from dataclasses import replace

import pytest
from support.build import made_plan as made
from support.build import table, workload
from support.printed import text_of

from recsmith.analyses.explain import explain
from recsmith.planning import Result, plan
from recsmith.plans import PARTS, inexact_tables
from recsmith.reports.plans import part_words, plan_report, price_to_raw, result_to_raw


def test_a_report_says_what_the_plan_does_costs_and_weighs(capsys: pytest.CaptureFixture[str]):
    text = text_of(plan_report(made(value_s=0.9), "a run"), capsys)
    assert "1 table, 12.5 KiB of weights on 2 devices: 1 table_wise" in text
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


def test_a_report_names_kernels_that_use_host_memory(capsys: pytest.CaptureFixture[str]):
    device = made()
    (whole,) = device.placements
    cached, remote = (replace(whole, compute_kernel=f"fused_uvm{word}") for word in ("_caching", ""))
    plans = [replace(device, placements=(each,)) for each in (cached, remote)]
    texts = [text_of(plan_report(plan), capsys) for plan in (*plans, device)]
    assert "host     1 table, 12.5 KiB of weights in host memory: 1 fused_uvm_caching at 0.2" in texts[0]
    assert "in host memory: 1 fused_uvm" in texts[1]
    assert "host memory" not in texts[2]


def test_lines_are_whole_when_nobody_watches(capsys: pytest.CaptureFixture[str]):
    space = "word " * 20
    plan = made(value_s=0.9)
    text = text_of(plan_report(replace(plan, bound=replace(plan.bound, space=space))), capsys)
    assert space.strip() in text
    assert "\x1b" not in text


def test_a_step_longer_than_the_mean_rank_says_by_how_much(capsys: pytest.CaptureFixture[str]):
    plan = made()
    first, *others = plan.cost.per_device
    slower = replace(first, forward_compute_s=first.forward_compute_s + first.busy_s)
    slow = replace(plan, cost=replace(plan.cost, total_s=slower.busy_s, per_device=(slower, *others)))
    over = slower.busy_s / slow.cost.mean_s - 1
    assert f"rank 0 decides: 62% forward compute; {over:.1%} over the mean" in text_of(plan_report(slow), capsys)


def test_a_step_of_no_seconds_is_reported(capsys: pytest.CaptureFixture[str]):
    plan = made(value_s=0.0)
    parts = dict.fromkeys(PARTS, 0.0)
    idle = tuple(replace(device, **parts) for device in plan.cost.per_device)
    plan = replace(plan, cost=replace(plan.cost, total_s=0.0, per_device=idle))
    assert "rank 0 decides: 0% forward compute; 0.0% over the mean" in text_of(plan_report(plan), capsys)


def test_tables_split_by_columns_are_noted_under_a_row_wise_optimizer(capsys: pytest.CaptureFixture[str]):
    plain = made()
    split = replace(plain.placements[0], sharding_type="column_wise", ranks=(0, 1), widths=(16, 16))
    exact = replace(plain, placements=(split,))
    plan = replace(exact, workload=workload(table("a"), optimizer="rowwise_adagrad"))
    assert (inexact_tables(plan), inexact_tables(exact)) == (["a"], [])
    assert "note     table a is split by columns under rowwise_adagrad" in text_of(plan_report(plan), capsys)
    assert "note" not in text_of(plan_report(exact), capsys)


def test_parts_are_named_in_words():
    assert [part_words(part) for part in PARTS[:2]] == ["forward compute", "backward compute"]


def test_the_data_of_a_result_holds_the_price_and_only_what_there_is():
    plan = made(value_s=0.9)
    raw = result_to_raw(Result(plan=plan, elapsed_s=0.5, iterations=3))
    assert raw["schema"] == "recsmith/result/1"
    assert raw["plan"]["digest"] == plan.digest
    assert (raw["cost_model"], raw["gap"], raw["bound"]["value_s"]) == (plan.cost_model, plan.gap, 0.9)
    assert {"members", "extrapolated"}.isdisjoint(raw)
    assert price_to_raw(replace(plan, extrapolated={"ids": 1.5}))["extrapolated"] == {"ids": 1.5}


def test_the_rank_that_decides_is_that_of_explain(capsys: pytest.CaptureFixture[str]):
    made = plan("criteo-kaggle", "h100:4", planner="random").plan
    longest = max(explain(made).phases, key=lambda phase: phase.seconds)
    over = longest.seconds / longest.mean_s - 1
    words = f"rank {longest.rank} decides {longest.seconds / made.cost.total_s:.0%} of it: "
    assert words in text_of(plan_report(made), capsys)
    assert f"; {over:.1%} over the mean" in text_of(plan_report(made), capsys)
