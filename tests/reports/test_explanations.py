"""What people and programs read of explained plans, and of one table of them."""

import json
from dataclasses import replace

import pytest
from support.build import table
from support.explained import EXPLANATION, PHASES, PLAN, TABLES, account, option, part
from support.printed import line_of, text_of

from recsmith.analyses.explain import Phase, RankShare
from recsmith.files import dump_json
from recsmith.reports.explanations import explanation_report, explanation_to_raw
from recsmith.workloads import AccessProfile


def test_a_phase_names_its_rank_its_parts_and_its_tables(capsys: pytest.CaptureFixture[str]):
    text = text_of(explanation_report(EXPLANATION), capsys)
    assert "step     1 s (cost model torchrec, predicted; 900 ms proven under it as the least)" in text
    assert "phase 1  forward compute + backward compute + backward comm, 60% of the step" in text
    assert "slowest  rank 1: 600 ms, 20.0% above the mean rank (500 ms)" in text
    assert "50% backward compute, 300 ms (of it 2 µs launches)" in text
    assert "33% backward comm, 200 ms (of it 3 µs latency)" in text
    assert "17% forward compute, 100 ms\n" in text
    assert text.index("50% backward compute") < text.index("33% backward comm") < text.index("17% forward compute")
    assert line_of("t0", text).split() == ["t0", "table_wise", "-100", "ms", "-16.7%"]
    assert "… 2 more" in text
    assert "t8" not in text
    assert "phase 2  forward comm, 40% of the step" in text


def test_tables_that_cost_a_phase_nothing_are_left_out(capsys: pytest.CaptureFixture[str]):
    free = replace(TABLES[1], seconds=0.0)
    text = text_of(
        explanation_report(replace(EXPLANATION, phases=(replace(PHASES[0], tables=(TABLES[0], free)),))), capsys
    )
    assert "t0" in text
    assert "t1" not in text


def test_a_step_of_one_phase_or_of_no_seconds_is_explained(capsys: pytest.CaptureFixture[str]):
    idle = Phase(rank=0, seconds=0.0, mean_s=0.0, parts=(part("forward_comm_s", 0.0),), tables=TABLES[:1])
    other = replace(EXPLANATION, cost_model="analytic", total_s=0.0, phases=(idle,))
    text = text_of(explanation_report(other), capsys)
    assert "step     0 µs (cost model analytic, predicted)\n" in text  # the bound is another model's
    assert "phase" not in text
    assert "rank 0: 0 µs, as all ranks" in text


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]):
    odd = replace(PHASES[1], tables=(replace(TABLES[0], table="[bold]a[/b]"),))
    assert "[bold]a[/b]" in text_of(explanation_report(replace(EXPLANATION, phases=(odd,))), capsys)


def test_the_data_of_an_explanation_is_whole_json():
    raw = explanation_to_raw(EXPLANATION)
    assert json.loads(dump_json(raw)) == raw
    assert (raw["schema"], raw["bound_s"], raw["gap"], raw["account"]) == ("recsmith/explanation/1", 0.9, 0.11, None)
    assert raw["phases"][1] == {
        "rank": 0, "seconds": 0.4, "mean_s": 0.4,
        "parts": [{"part": "forward_comm_s", "seconds": 0.4, "launch_s": 0.0, "latency_s": 0.0}],
        "tables": [{"table": "t0", "sharding_type": "table_wise", "seconds": 0.1}],
    }  # fmt: skip
    other = explanation_to_raw(replace(EXPLANATION, cost_model="analytic"))
    assert (other["bound_s"], other["gap"]) == (None, None)


def test_the_data_of_an_account_keeps_every_option():
    options = option("row_wise", 1.0, 0, 1, current=True), option("table_wise", None)
    read = table("a", access=AccessProfile(zipf=1.2))
    raw = explanation_to_raw(account(*options, table=read))["account"]
    assert json.loads(json.dumps(raw)) == raw
    assert raw["alternatives"] == [
        {"sharding_type": "row_wise", "compute_kernel": "fused", "widths": [], "ranks": [0, 1], "total_s": 1.0,
         "change": 0.0, "current": True},
        {"sharding_type": "table_wise", "compute_kernel": "fused", "widths": [], "ranks": [], "total_s": None,
         "change": None, "current": False},
    ]  # fmt: skip
    assert raw["table"]["access"] == {"zipf": 1.2}
    assert raw["placement"] == {"table": "a", "sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]}


def test_an_account_says_where_a_table_is_and_what_it_costs(capsys: pytest.CaptureFixture[str]):
    text = text_of(explanation_report(account()), capsys)
    assert "table    a: 100 x 32 fp32, 12.5 KiB; 1 id a sample, pooling sum" in text
    assert "placed   row_wise, kernel fused, on ranks 0, 1" in text
    assert "rank 1: rows 50 to 99, columns 0 to 31" in text
    assert "1,234 ids a step on each of its ranks, 12.5% of them different rows" in text
    assert "1 ms          2 ms       0 µs       0 µs   3 ms" in text
    unknown = text_of(explanation_report(account(unique_ratio=None)), capsys)
    assert "the workload does not say how often rows are read again" in unknown


def test_ranks_that_pay_alike_share_a_row(capsys: pytest.CaptureFixture[str]):
    one = RankShare(rank=2, forward_compute_s=1.0, backward_compute_s=0.0, forward_comm_s=0.0, backward_comm_s=0.0)
    shares = (*(replace(one, rank=rank) for rank in range(5)), replace(one, rank=5, forward_compute_s=2.0))
    lines = text_of(explanation_report(account(ranks=shares)), capsys).splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["ranks"])
    assert [line.split()[:3] for line in lines[at + 2 : at + 4]] == [["5", "2", "s"], ["0-4", "1", "s"]]
    many = tuple(replace(one, rank=rank, forward_compute_s=1.0 + rank) for rank in range(20))
    assert "… 12 more" in text_of(explanation_report(account(ranks=many)), capsys)


def test_options_are_listed_with_the_present_one_marked(capsys: pytest.CaptureFixture[str]):
    options = (
        option("column_wise", 0.9, 0, 1, widths=(20, 12)), option("table_column_wise", 0.9, 0, 1, widths=(20, 12)),
        option("row_wise", 1.0, 0, 1, current=True), option("grid_shard", 1.0, *range(9), change=0.0),
        option("data_parallel", 94.0, *range(16)), option("table_wise", None),
    )  # fmt: skip
    lines = text_of(explanation_report(account(*options)), capsys).splitlines()
    shown = [line.split() for line in lines[-6:-1]]
    assert shown[0] == ["column_wise,", "table_column_wise", "1", "x", "20", "+", "1", "x", "12", "fused", "0,", "1",
                        "0.90", "s", "-10.00%"]  # fmt: skip
    assert shown[1] == ["»", "row_wise", "whole", "fused", "0,", "1", "1.00", "s", "as", "it", "is"]
    assert shown[2] == ["grid_shard", "whole", "fused", "0-8", "1.00", "s", "+0.00%"]
    assert shown[3] == ["data_parallel", "whole", "fused", "0-15", "94.00", "s", "x", "94"]
    assert shown[4] == ["table_wise", "whole", "fused", "no", "room"]


def test_long_lists_of_options_keep_the_best_of_each_type(capsys: pytest.CaptureFixture[str]):
    splits = [option("column_wise", 1.0 + i / 100, i) for i in range(20)]
    options = (
        *splits,
        option("row_wise", 2.0, 0, 1, current=True),
        option("table_wise", 2.1, 1),
        option("table_wise", 2.2, 3),
    )
    text = text_of(explanation_report(account(*options)), capsys)
    assert text.count("column_wise") == 12
    assert text.count("table_wise") == 1
    assert "»   row_wise" in text
    assert "… 9 more splits of these" in text


def test_many_shards_and_ranks_are_cut(capsys: pytest.CaptureFixture[str]):
    shards = tuple(replace(PLAN.shards()[0], rank=rank) for rank in range(12))
    spread = replace(PLAN.placements[1], ranks=(5, *range(11)), widths=(20, 12))
    text = text_of(explanation_report(account(shards=shards, placement=spread)), capsys)
    assert "… 4 more shards" in text
    assert "columns 1 x 20 + 1 x 12, on ranks 5, 0, 1, 2, 3, 4, 5, 6 …" in text
    single = text_of(explanation_report(account(shards=shards[:1], placement=replace(spread, ranks=(5,)))), capsys)
    assert "on rank 5\n" in single
    assert "rows" not in single.split("access")[0]
