"""What people and programs read of comparisons and explanations."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.analyses.alternatives import Alternative
from recsmith.analyses.comparison import Comparison, Judgement, PlannerRow, ranked, verdict_on
from recsmith.analyses.explain import Explanation, PartShare, Phase, RankShare, TableAccount, TableShare
from recsmith.analyses.sensitivity import Spread
from recsmith.files import dump_json
from recsmith.plans import Bound
from recsmith.reports.comparison import comparison_report, comparison_to_raw
from recsmith.reports.explanation import explanation_report, explanation_to_raw
from recsmith.reports.text import show
from recsmith.workloads import AccessProfile

PLACED = placed("[b]", "table_wise", [0]), placed("a", "row_wise", [0, 1])
BOUND = Bound(value_s=0.9, kind="relaxation", space="all types")
PLAN = replace(plan_of(workload(table("a"), table("[b]")), cluster(), *PLACED), bound=BOUND, gap=0.11)


def text_of(renderable: object, capsys: pytest.CaptureFixture[str]) -> str:
    show(renderable)  # pyright: ignore[reportArgumentType]
    return capsys.readouterr().out


# --- comparison ---------------------------------------------------------------------------------------------------


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


def line_of(name: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [name])


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


# --- explanation --------------------------------------------------------------------------------------------------


def part(name: str, seconds: float, launch: float = 0.0, latency: float = 0.0) -> PartShare:
    return PartShare(part=name, seconds=seconds, launch_s=launch, latency_s=latency)


TABLES = tuple(TableShare(table=f"t{i}", sharding_type="table_wise", seconds=0.1 - i / 1000) for i in range(10))
PHASES = (
    Phase(rank=1, seconds=0.6, mean_s=0.5, tables=TABLES, parts=(
        part("forward_compute_s", 0.1), part("backward_compute_s", 0.3, 2e-6), part("backward_comm_s", 0.2, 0.0, 3e-6),
    )),
    Phase(rank=0, seconds=0.4, mean_s=0.4, tables=TABLES[:1], parts=(part("forward_comm_s", 0.4),)),
)  # fmt: skip
EXPLANATION = Explanation(plan=PLAN, cost_model="torchrec", total_s=1.0, phases=PHASES)


def way(kind: str, total: float | None, *ranks: int, **changes: Any) -> Alternative:
    change = None if total is None else total - 1.0
    made = Alternative(
        sharding_type=kind, compute_kernel="fused", widths=(), ranks=ranks, total_s=total, change=change, current=False
    )
    return replace(made, **changes)


def account(*ways: Alternative, **changes: Any) -> Explanation:
    shares = [
        RankShare(rank=rank, forward_compute_s=1e-3, backward_compute_s=2e-3, forward_comm_s=0.0, backward_comm_s=0.0)
        for rank in range(2)
    ]
    placement = PLAN.placements[1]
    made = TableAccount(
        table=table("a"), placement=placement, ranks=tuple(shares), ids=1234.0, unique_ratio=0.125,
        shards=tuple(shard for shard in PLAN.shards() if shard.table == "a"),
        alternatives=ways or (way("row_wise", 1.0, 0, 1, current=True),),
    )  # fmt: skip
    return replace(EXPLANATION, account=replace(made, **changes))


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


def test_an_account_says_where_a_table_is_and_what_it_costs(capsys: pytest.CaptureFixture[str]):
    text = text_of(explanation_report(account()), capsys)
    assert "table    a: 100 x 32 fp32, 12.5 KiB; 1 ids a sample, pooling sum" in text
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


def test_ways_are_listed_with_the_present_one_marked(capsys: pytest.CaptureFixture[str]):
    ways = (
        way("column_wise", 0.9, 0, 1, widths=(20, 12)), way("table_column_wise", 0.9, 0, 1, widths=(20, 12)),
        way("row_wise", 1.0, 0, 1, current=True), way("grid_shard", 1.0, *range(9), change=0.0),
        way("data_parallel", 94.0, *range(16)), way("table_wise", None),
    )  # fmt: skip
    lines = text_of(explanation_report(account(*ways)), capsys).splitlines()
    shown = [line.split() for line in lines[-6:-1]]
    assert shown[0] == ["column_wise,", "table_column_wise", "1", "x", "20", "+", "1", "x", "12", "fused", "0,", "1",
                        "900", "ms", "-10.00%"]  # fmt: skip
    assert shown[1] == ["»", "row_wise", "whole", "fused", "0,", "1", "1", "s", "as", "it", "is"]
    assert shown[2] == ["grid_shard", "whole", "fused", "0-8", "1", "s", "+0.00%"]
    assert shown[3] == ["data_parallel", "whole", "fused", "0-15", "94", "s", "x", "94"]
    assert shown[4] == ["table_wise", "whole", "fused", "no", "room"]


def test_long_lists_of_ways_keep_the_best_of_each_type(capsys: pytest.CaptureFixture[str]):
    splits = [way("column_wise", 1.0 + i / 100, i) for i in range(20)]
    ways = (*splits, way("row_wise", 2.0, 0, 1, current=True), way("table_wise", 2.1, 1), way("table_wise", 2.2, 3))
    text = text_of(explanation_report(account(*ways)), capsys)
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


def test_the_data_of_an_account_keeps_every_way():
    ways = way("row_wise", 1.0, 0, 1, current=True), way("table_wise", None)
    read = table("a", access=AccessProfile(zipf=1.2))
    raw = explanation_to_raw(account(*ways, table=read))["account"]
    assert json.loads(json.dumps(raw)) == raw
    assert raw["alternatives"] == [
        {"sharding_type": "row_wise", "compute_kernel": "fused", "widths": [], "ranks": [0, 1], "total_s": 1.0,
         "change": 0.0, "current": True},
        {"sharding_type": "table_wise", "compute_kernel": "fused", "widths": [], "ranks": [], "total_s": None,
         "change": None, "current": False},
    ]  # fmt: skip
    assert raw["table"]["access"] == {"zipf": 1.2}
    assert raw["placement"] == {"table": "a", "sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]}
