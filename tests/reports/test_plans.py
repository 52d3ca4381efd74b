"""What people read of a plan, and of what differs between two: few rows for many devices, and what to beware of."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.build import made_plan as made
from support.printed import text_of

from recsmith.analyses.explain import explain
from recsmith.costs.neural.files import find_model, load_model
from recsmith.costs.weight_files import shipped_models
from recsmith.planning import Result, plan
from recsmith.plans import PARTS, diff, inexact_tables
from recsmith.plans.predicted_error import PublishedError
from recsmith.problems import Space
from recsmith.reports.plan_differences import diff_report, diff_to_raw
from recsmith.reports.plans import part_words, plan_report, price_to_raw, result_to_raw, tables_words
from recsmith.workloads import Table
from recsmith.workloads.workload import IndexDedup

ODD = "[bold]a[/b] :smile: \\[x]"


def test_a_report_says_what_the_plan_does_costs_and_weighs(capsys: pytest.CaptureFixture[str]):
    text = text_of(plan_report(made(value_s=0.9), "a run"), capsys)
    assert "1 table, 12.5 KiB of weights on 2 devices: 1 whole" in text
    assert "toy:2, 1 GiB a device" in text
    assert "1 s (cost model torchrec, predicted)" in text
    assert "slowest  rank 0, mostly forward compute (25%); 0.0% over the mean rank" in text
    assert "900 ms proven under this cost model, at most 11% above the best" in text
    assert "valid for: all 7 sharding types" in text
    assert "search   a run" in text
    assert made(value_s=0.9).digest[:16] in text


def test_a_plan_without_a_bound_says_so(capsys: pytest.CaptureFixture[str]):
    assert "bound    none (relaxation)" in text_of(plan_report(made()), capsys)


def test_a_plan_outside_the_space_of_its_bound_says_so(capsys: pytest.CaptureFixture[str]):
    plan = replace(made(value_s=0.9), gap=None)
    assert "900 ms proven under this cost model, the plan lies outside this space" in text_of(plan_report(plan), capsys)


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
    assert f"rank 0, mostly forward compute (62%); {over:.1%} over the mean rank" in text_of(plan_report(slow), capsys)


def test_a_step_of_no_seconds_is_reported(capsys: pytest.CaptureFixture[str]):
    plan = made(value_s=0.0)
    parts = dict.fromkeys(PARTS, 0.0)
    idle = tuple(replace(device, **parts) for device in plan.cost.per_device)
    plan = replace(plan, cost=replace(plan.cost, total_s=0.0, per_device=idle))
    assert "rank 0, mostly forward compute (0%); 0.0% over the mean rank" in text_of(plan_report(plan), capsys)


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
    words = f"for {longest.seconds / made.cost.total_s:.0%} of the step: rank {longest.rank}, mostly "
    assert words in text_of(plan_report(made), capsys)
    assert f"; {over:.1%} over the mean" in text_of(plan_report(made), capsys)


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
    assert text.split("\n")[-3].split()[-3:] == ["-", "0", "KiB"]


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


def test_below_the_step_of_a_learned_model_stands_how_far_its_kernels_were_off(capsys: pytest.CaptureFixture[str]):
    """Of a shipped model on its device; of one that is not here nothing is known. A plan's own word goes before."""
    name = next(name for name in shipped_models() if name == "h100")
    off = load_model(find_model(name))[1].held_out
    text = text_of(plan_report(replace(made(), cost_model=f"neural:{name}", error=None), "a run"), capsys)
    told = f"measured kernels ±{off.median:.1%} ({off.samples:,} held-out groups)"
    assert told in " ".join(text.split())
    gone = text_of(plan_report(replace(made(), cost_model="neural:./gone", error=None), "a run"), capsys)
    assert "error    the step may be off: " in gone
    assert "held-out" not in gone
    own = PublishedError(device="toy", checked={}, unchecked=(), share=0.25, spread=0.25)
    assert "error    the step may be off by about 25%" in text_of(plan_report(replace(made(), error=own), "x"), capsys)


@pytest.mark.parametrize(("dedup", "words"), [("on", "looks its equal ids up once"), ("off", "looked up one by one")])
def test_a_report_says_what_rows_of_sequences_take_beside_the_plan(
    dedup: IndexDedup, words: str, capsys: pytest.CaptureFixture[str]
):
    work = workload(table("s", pooling="none"), table("p"), index_dedup=dedup)
    found = plan(work, "cpu:2", space=Space(kernels=("fused",))).plan
    text = " ".join(text_of(plan_report(found), capsys).split())
    assert "of every rank's step go to rows of 1 sequence table under any plan" in text
    assert f"{words} (index_dedup: {dedup})" in text
    assert "sequence table" not in text_of(plan_report(plan(workload(table("p")), "cpu:2").plan), capsys)


def test_one_piece_of_columns_is_a_whole_table():
    made = plan_of(workload(table("a"), table("b")), cluster(), placed("a", "column_wise", [0], [32]),
                   placed("b", "column_wise", [0, 1], [16, 16]))  # fmt: skip
    assert tables_words(made).endswith("1 whole, 1 split by columns")
