"""What people and programs read of explained plans."""

import json
from dataclasses import replace

import pytest
from support.build import table
from support.explained import EXPLANATION, PHASES, TABLES, account, option, part
from support.printed import line_of, text_of

from recsmith.analyses.explain import Phase
from recsmith.files import dump_json
from recsmith.reports.explanations import explanation_report, explanation_to_raw
from recsmith.workloads import AccessProfile


def test_a_phase_names_its_rank_its_parts_and_its_tables(capsys: pytest.CaptureFixture[str]):
    text = text_of(explanation_report(EXPLANATION), capsys)
    assert "step     1 s (cost model torchrec, predicted; 900 ms proven as the least)" in text
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
