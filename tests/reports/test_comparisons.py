"""What people and programs read of comparisons of planners, and of sweeps."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from support.build import table, workload
from support.explained import PLAN
from support.printed import line_of, text_of
from support.schema import problems

from recsmith.analyses.compare import Comparison, Judgement, PlannerRow, ranked, verdict_on
from recsmith.analyses.scaling import Fixed, Knee, Point, Sweep, with_knees
from recsmith.analyses.sensitivity import Spread
from recsmith.clusters import load_cluster
from recsmith.files import dump_json
from recsmith.reports.comparisons import (
    COLUMNS,
    comparison_report,
    comparison_to_raw,
    knee_words,
    point_words,
    sweep_report,
    sweep_to_csv,
    sweep_to_raw,
)
from recsmith.reports.schemas import schema_of


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
    assert "bounds   valid for all 7 sharding types" in text
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


def point(devices: int, step: float | None, **changes: Any) -> Point:
    """A point at a global batch of 4,096 samples."""
    made = Point(
        device="toy", per_host=4, devices=devices, hosts=max(1, devices // 4), batch_size=4096 // devices,
        global_batch_size=4096, outcome="planned", error=None, digest="d", total_s=step, bound_s=0.9e-3, gap=0.11,
        memory_share=0.517, samples_per_s=4096 / step if step else None,
        device_s_per_step=devices * step if step else step,
        device_s_per_million=1e6 * devices * step / 4096 if step else step, elapsed_s=1.23, truncated=False, knee=False,
    )  # fmt: skip
    return replace(made, **changes)


def failed_point(devices: int, outcome: str, error: str) -> Point:
    figures = dict.fromkeys(
        ("digest", "bound_s", "gap", "memory_share", "samples_per_s", "device_s_per_step", "device_s_per_million")
    )
    return point(devices, None, outcome=outcome, error=error, **figures)


def sweep(*points: Point, fixed: Fixed = "global_batch_size", left: int = 0) -> Sweep:
    marked, knees = with_knees(points, fixed)
    return Sweep(
        workload=workload(table("a"), table("b")), planner="auto", cost_model="analytic", space="all types",
        fixed=fixed, points=marked, knees=knees, left=left, plans={},
    )  # fmt: skip


def text_of_sweep(found: Sweep, capsys: pytest.CaptureFixture[str]) -> str:
    return text_of(sweep_report(found), capsys)


def row_of(text: str, devices: int) -> str:
    """The words of the row of so many devices."""
    rows = [" ".join(line.split()) for line in text.splitlines()]
    return next(row for row in rows if row.startswith(f"toy:4 {devices} "))


# --- text ---------------------------------------------------------------------------------------------------------


def test_a_sweep_under_the_default_says_which_model_prices_its_devices(capsys: pytest.CaptureFixture[str]):
    here = {
        device: replace(PLAN, cost_model="best", cluster=load_cluster(f"{device}:2")) for device in ("h100", "b200")
    }
    found = replace(sweep(point(4, 1e-3)), cost_model="best", plans=here)
    assert "cost model best, here neural:h100 and fitted;" in text_of_sweep(found, capsys)
    assert "cost model best;" in text_of_sweep(replace(found, plans={}), capsys)


def test_a_row_holds_the_figures_of_a_point(capsys: pytest.CaptureFixture[str]):
    text = text_of_sweep(sweep(point(4, 1e-3), point(8, 0.9e-3)), capsys)
    assert "workload 2 tables, 25 KiB of weights" in text
    assert "planner auto, cost model analytic; steps are those of the embeddings, predicted, not measured" in text
    assert "bounds   valid for all 7 sharding types" in text
    assert row_of(text, 4) == "toy:4 4 1 1,024 4,096 1.000 ms 900 µs 11% 52% 4.096 M 4 ms 0.977 s 1.2 s knee"
    assert row_of(text, 8) == "toy:4 8 2 512 4,096 0.900 ms 900 µs 11% 52% 4.551 M 7.2 ms 1.758 s 1.2 s"


def test_points_without_a_plan_say_why(capsys: pytest.CaptureFixture[str]):
    lost = [
        failed_point(1, "infeasible", "needs 3 GiB. Proved"), failed_point(2, "not_found", "gave up"),
        failed_point(3, "refused", "too many ranks"),
    ]  # fmt: skip
    text = text_of_sweep(sweep(*lost, point(4, 1e-3, truncated=True)), capsys)
    assert row_of(text, 1) == "toy:4 1 1 4,096 4,096 infeasible 1.2 s"
    assert row_of(text, 2) == "toy:4 2 1 2,048 4,096 no plan found 1.2 s"
    assert row_of(text, 3) == "toy:4 3 1 1,365 4,096 refused 1.2 s"
    assert row_of(text, 4).endswith("1.2 s cut")
    assert "note     toy:4, 1 device, batch 4,096: needs 3 GiB. Proved\n" in text
    assert "note     toy:4, 2 devices, batch 2,048: gave up\n" in text
    assert "knee" not in text  # of one plan


def test_figures_that_do_not_exist_are_dashes(capsys: pytest.CaptureFixture[str]):
    text = text_of_sweep(sweep(point(4, 0.0, bound_s=None, gap=None)), capsys)
    assert row_of(text, 4) == "toy:4 4 1 1,024 4,096 0 µs - - 52% - 0 µs 0 µs 1.2 s"


@pytest.mark.parametrize(("rate", "said"), [(512.0, "512"), (51_234.0, "51.23 k"), (51_234_567.0, "51.23 M")])
def test_rates_are_short(rate: float, said: str, capsys: pytest.CaptureFixture[str]):
    assert f" 52% {said} 4 ms " in row_of(text_of_sweep(sweep(point(4, 1e-3, samples_per_s=rate)), capsys), 4)


def test_no_line_of_the_table_is_cut_at_the_width_of_a_file(capsys: pytest.CaptureFixture[str]):
    wide = point(4096, 1.234e-3, device="torchrec-default", batch_size=65_536, global_batch_size=2**22, gap=2.5,
                 hosts=512, per_host=8, bound_s=123.4e-6, elapsed_s=1234.5)  # fmt: skip
    lines = text_of_sweep(sweep(wide, replace(wide, devices=8192)), capsys).splitlines()
    assert sum(line.startswith(" torchrec-default:8 ") for line in lines) == 2
    assert "…" not in "".join(lines)


KNEE = Knee(
    device="toy", per_host=4, size=4096, devices=4, next_devices=8, next_speedup=1.25, pays_from=1.41421, fewest=False,
    proven=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "toy:4, 4,096 samples a step: 4 devices; 8 give 1.25 x the samples a second (more than 1.41 x would pay)"),
        ({"fewest": True, "devices": 1},
         "toy:4, 4,096 samples a step: 1 device, the fewest here; 8 give 1.25 x the samples a second (more than 1.41 x "
         "would pay)"),
        ({"next_speedup": None}, "toy:4, 4,096 samples a step: 4 devices; 8 are no faster"),
        ({"next_devices": None, "next_speedup": None, "pays_from": None, "proven": True},
         "toy:4, 4,096 samples a step: 4 devices; the most here, so more may pay too; proven"),
    ],
)  # fmt: skip
def test_a_knee_says_why_more_do_not_pay(changes: dict[str, Any], said: str):
    assert knee_words(replace(KNEE, **changes), "global_batch_size") == said


def test_a_knee_says_which_batch_is_fixed(capsys: pytest.CaptureFixture[str]):
    rows = [replace(point(n, 1e-3), batch_size=16, global_batch_size=16 * n) for n in (4, 8)]
    assert "knee     toy:4, 16 samples a device: 8 devices; the most here" in text_of_sweep(
        sweep(*rows, fixed="batch_size"), capsys
    )


def test_a_point_is_named_by_device_count_and_batch():
    assert point_words(point(1, 1.0)) == "toy:4, 1 device, batch 4,096"
    assert point_words(point(8, 1.0)) == "toy:4, 8 devices, batch 512"


# --- data ---------------------------------------------------------------------------------------------------------


def test_the_data_of_a_sweep_is_whole_json():
    found = sweep(failed_point(2, "infeasible", "too large"), point(4, 1e-3), point(8, 1e-3), left=3)
    raw = sweep_to_raw(found)
    assert json.loads(dump_json(raw)) == raw
    assert problems(raw, schema_of("sweep")) == []
    assert (raw["schema"], raw["fixed"], raw["left"]) == ("recsmith/sweep/1", "global_batch_size", 3)
    assert raw["knees"] == [
        {"device": "toy", "per_host": 4, "size": 4096, "devices": 4, "next_devices": 8, "next_speedup": 1.0,
         "pays_from": 2**0.5, "fewest": True, "proven": True},
    ]  # fmt: skip
    lost, first, _ = raw["points"]
    assert tuple(lost) == tuple(first) == COLUMNS
    assert (lost["outcome"], lost["error"], lost["total_s"]) == ("infeasible", "too large", None)
    assert (first["outcome"], first["error"], first["total_s"], first["knee"]) == ("planned", None, 1e-3, True)


def test_the_columns_of_the_csv_are_frozen():
    assert COLUMNS == (
        "device", "per_host", "devices", "hosts", "batch_size", "global_batch_size", "outcome", "error", "digest",
        "total_s", "bound_s", "gap", "memory_share", "samples_per_s", "device_s_per_step", "device_s_per_million",
        "elapsed_s", "truncated", "knee",
    )  # fmt: skip


def test_a_sweep_of_2d_jobs_has_columns_for_groups_and_their_synchronisation(capsys: pytest.CaptureFixture[str]):
    alone, split = point(4, 1e-3, group_size=4), point(8, 1e-3, group_size=4, sync_s=2e-4)
    lines = sweep_to_csv(sweep(alone, split)).splitlines()
    assert lines[0] == ",".join((*COLUMNS, "group_size", "sync_s"))
    assert [line.rsplit(",", 2)[1:] for line in lines[1:]] == [["4", ""], ["4", "0.0002"]]
    shown = text_of(sweep_report(sweep(alone, split)), capsys)
    assert "sharding groups of 4" in line_of("knee", shown)
    rows = [line.split() for line in shown.splitlines() if line.split()[:2] == ["toy:4", "4"]]
    assert [row[2:5] for row in rows] == [["-", "4", "1,024"], ["200", "µs", "8"]]


def test_csv_and_json_hold_the_same_points():
    found = sweep(failed_point(2, "infeasible", 'too "large", by far\nProved'), point(4, 1 / 3), point(8, 0.0))
    raw = sweep_to_raw(found)["points"]
    text = sweep_to_csv(found)
    assert text.splitlines()[0] == ",".join(COLUMNS)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 3
    for row, same in zip(rows, raw, strict=True):
        words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in same.items()}
        assert row == {name: "" if word == "null" else word for name, word in words.items()}


def test_a_change_that_rounds_to_nothing_has_no_minus_and_one_sample_is_one(capsys: pytest.CaptureFixture[str]):
    slightly = replace(row("auto", 1.0, 2.0), sensitivity=Spread(median_s=0.9999, p95_s=1.06, off=0.2, draws=100))
    found = comparison(slightly, row("dim_greedy", 1.5, 1.0))
    one = {name: replace(plan, workload=plan.workload.with_batch_size(1)) for name, plan in found.plans.items()}
    text = text_of(comparison_report(replace(found, plans=one)), capsys)
    assert "+0.0% (95th +6.0%)" in text
    assert "; 1 sample a device" in text
