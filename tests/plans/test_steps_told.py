"""One step for all faces: with what any plan takes for rows of sequence tables (StepCost.step_s)."""

import re
from pathlib import Path

import pytest
from support.build import table, workload

import recsmith
from recsmith import AccessProfile, load_cluster
from recsmith.analyses.compare import compare
from recsmith.analyses.replan_curve import replan_curve
from recsmith.analyses.sensitivity import sensitivity
from recsmith.planning.replan import replan
from recsmith.reports.explanations import explanation_report, explanation_to_raw
from recsmith.reports.layout import show
from recsmith.reports.moves import replan_report, replan_to_raw
from recsmith.reports.plan_differences import diff_report
from recsmith.reports.plans import plan_report
from recsmith.units import format_time
from recsmith.web.report_data import report_data
from recsmith.web.serving.views import kept_plan, plan_data, plan_summary

CPU, MODEL = load_cluster("cpu:2"), "analytic"
WORK = workload(
    *(table(f"s{i}", 4_000, 64, pooling_factor=16.0, pooling="none", access=AccessProfile(zipf=0.0)) for i in range(3)),
    batch_size=256,
    index_dedup="on",
)
MADE = recsmith.plan(WORK, CPU, planner="size_greedy", cost_model=MODEL).plan
STEP, BESIDE = MADE.cost.step_s, MADE.cost.sequences_s
JUDGED = compare(WORK, CPU, planners=("size_greedy",), judges=(), cost_model=MODEL).rows[0].judgements[0]
OWN = (  # who means the part of a step that a plan decides: it is what a bound is about, and what rules add up
    "plans/plan.py", "planning/simulate.py", "planning/result.py", "planning/changed_problem.py", "costs/protocol.py",
    "planning/stashing.py",
    "analyses/certificates.py", "reports/certificates.py", "analyses/compare.py", "web/serving/pricing.py",
    "testing/planners.py", "__init__.py",
)  # fmt: skip


def test_each_face_tells_the_same_step() -> None:
    assert 1.1 * MADE.cost.total_s < STEP
    told = {
        "compare": JUDGED.total_s,
        "diff": recsmith.diff(MADE, MADE).before_s,
        "explain": recsmith.explain(MADE).total_s,
        "explain as data": explanation_to_raw(recsmith.explain(MADE))["total_s"],
        "report": report_data(MADE).plan.total_s,
        "page": plan_summary("key", kept_plan(MADE, "it", "made")).total_s,
        "curve": replan_to_raw(replan_curve(MADE, limits=(0,)))["points"][0]["step_s"],
        "sensitivity": sensitivity(MADE, off=0.0, draws=1).median_s,
    }
    assert told == {name: pytest.approx(STEP, rel=1e-9) for name in told}


def test_each_face_tells_the_same_bound() -> None:
    assert MADE.bound.value_s is not None
    least = MADE.bound.value_s + BESIDE
    told = {
        "compare": JUDGED.bound_s,
        "explain": explanation_to_raw(recsmith.explain(MADE))["bound_s"],
        "report": report_data(MADE).plan.bound.value_s,
        "page": plan_summary("key", kept_plan(MADE, "it", "made")).bound_s,
        "plan's page": plan_data(MADE)["bound"]["value_s"],
    }
    assert told == {name: pytest.approx(least, rel=1e-9) for name in told}


def test_texts_tell_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    again = replan(MADE, max_moved=0)
    texts = {
        "plan": plan_report(MADE), "diff": diff_report(recsmith.diff(MADE, MADE), "a", "b"),
        "replan": replan_report(MADE, "it", again, None),
        "explain": explanation_report(recsmith.explain(MADE)),
    }  # fmt: skip
    for name, text in texts.items():
        show(text)
        assert format_time(STEP) in capsys.readouterr().out, name


def test_phases_and_what_any_plan_takes_add_up_to_the_step() -> None:
    found = recsmith.explain(MADE, table="s0")
    assert sum(each.seconds for each in found.phases) + found.sequences_s == pytest.approx(STEP, rel=1e-9)
    assert found.account is not None
    assert [each.total_s for each in found.account.alternatives if each.current] == [STEP]
    assert min(each.total_s or STEP for each in found.account.alternatives) > BESIDE


def test_a_search_that_is_watched_tells_whole_steps() -> None:
    heard: list[float] = []
    made = recsmith.plan(WORK, CPU, cost_model=MODEL, planner="auto", on_improve=heard.append).plan
    assert heard[-1] == pytest.approx(made.cost.step_s, rel=1e-9)


def test_nobody_else_reads_the_part_that_plans_decide() -> None:
    src = Path(recsmith.__file__).parent
    readers = {
        str(path.relative_to(src)) for path in src.rglob("*.py") if re.search(r"cost\.total_s", path.read_text())
    }
    assert readers - set(OWN) == set()
