"""What people and programs read of comparisons of planners."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support.explained import PLAN
from support.printed import line_of, text_of

from recsmith.analyses.compare import Comparison, Judgement, PlannerRow, ranked, verdict_on
from recsmith.analyses.sensitivity import Spread
from recsmith.files import dump_json
from recsmith.reports.comparisons import comparison_report, comparison_to_raw


def row(name: str, *totals: float, **changes: Any) -> PlannerRow:
    judgements = tuple(
        Judgement(cost_model=judge, total_s=total, bound_s=0.9, gap=total / 0.9 - 1, over_best=None)
        for judge, total in zip(("analytic", "torchrec"), totals, strict=True)
    )
    spread = Spread(median_s=1.031 * totals[0], p95_s=1.06 * totals[0], off=0.2, draws=100)
    made = PlannerRow(
        name=name, digest="d", search_s=0.25, truncated=False, error=None, judgements=judgements, fits=True,
        overfull=0, sensitivity=spread,
    )  # fmt: skip
    return replace(made, **changes)


def failed(name: str) -> PlannerRow:
    words = {"digest": None, "judgements": (), "fits": False, "sensitivity": None}
    return row(name, 1.0, 1.0, error="found no room", **words)


def comparison(*rows: PlannerRow) -> Comparison:
    found = ranked(rows)
    plans = {each.name: PLAN for each in found if each.judgements}
    judges = ("analytic", "torchrec")
    return Comparison(rows=found, judges=judges, verdict=verdict_on(found, judges), plans=plans)


def test_a_row_holds_costs_gaps_and_what_pooling_does(capsys: pytest.CaptureFixture[str]):
    text = text_of(comparison_report(comparison(row("auto", 1.0, 2.0), row("dim_greedy", 1.5, 1.0))), capsys)
    assert "workload 2 tables, 25 KiB of weights; 16 samples a device" in text
    assert "space    all types" in text
    words = line_of("auto", text).split()
    assert words == [
        "auto",
        "0.25",
        "s",
        "1",
        "s",
        "11%",
        "best",
        "2",
        "s",
        "122%",
        "+100.0%",
        "+3.1%",
        "(95th",
        "+6.0%)",
    ]
    assert "verdict  the judges disagree: auto is best under analytic, but under torchrec it costs 100% more" in text
    assert "by up to 20%" in text
    assert "change" not in text
    assert "note" not in text


def test_the_baseline_is_held_against_the_best_planner(capsys: pytest.CaptureFixture[str]):
    running = row("baseline", 2.0, 2.0, search_s=None)
    lost = row("random", 0.5, 0.5, fits=False)
    text = text_of(comparison_report(comparison(running, row("auto", 1.0, 1.5), lost)), capsys)
    assert "from baseline to auto the step changes by -50.0% under analytic, -25.0% under torchrec" in text
    assert "runs now" in line_of("baseline", text)


def test_a_planner_without_a_plan_and_plans_without_room_are_noted(capsys: pytest.CaptureFixture[str]):
    rows = row("auto", 1.0, 1.0), failed("dim_greedy"), row("baseline", 0.8, 0.8, fits=False, overfull=3)
    text = text_of(comparison_report(comparison(*rows)), capsys)
    assert "note     dim_greedy: found no room" in text
    assert "note     baseline does not fit: 3 devices need more memory than there is, so it is not counted as" in text
    assert "no plan" in text.splitlines()[-2]
    assert "-20.0%" in line_of("baseline", text)
    for overfull, said in ((1, "a device needs more"), (0, "hosts need more")):
        other = comparison(rows[0], replace(rows[2], overfull=overfull))
        assert said in text_of(comparison_report(other), capsys)


def test_cut_searches_and_missing_figures_are_shown(capsys: pytest.CaptureFixture[str]):
    free = row("auto", 0.0, 0.0, truncated=True)
    bare = tuple(replace(each, gap=None) for each in free.judgements)
    text = text_of(comparison_report(comparison(replace(free, judgements=bare))), capsys)
    assert line_of("auto", text).split() == [
        "auto",
        "0.25",
        "s",
        "(cut)",
        "0",
        "µs",
        "-",
        "-",
        "0",
        "µs",
        "-",
        "-",
        "-",
    ]


def test_the_data_of_a_comparison_is_whole_json():
    raw = comparison_to_raw(comparison(row("auto", 1.0, 2.0), failed("dim_greedy")))
    assert json.loads(dump_json(raw)) == raw
    assert (raw["schema"], raw["judges"]) == ("recsmith/comparison/1", ["analytic", "torchrec"])
    assert raw["verdict"] == "auto has the only plan that fits"
    auto, lost = raw["rows"]
    assert auto["judgements"][0] == {
        "cost_model": "analytic", "total_s": 1.0, "bound_s": 0.9, "gap": 1.0 / 0.9 - 1, "over_best": 0.0,
    }  # fmt: skip
    assert auto["sensitivity"] == {"median_s": 1.031, "p95_s": 1.06, "off": 0.2, "draws": 100}
    assert lost == {
        "name": "dim_greedy", "digest": None, "search_s": 0.25, "truncated": False, "error": "found no room",
        "judgements": [], "fits": False, "overfull": 0, "sensitivity": None,
    }  # fmt: skip
