"""A plan in five lines: each says what its name promises, and a note stands where training would differ."""

from dataclasses import replace

import pytest
from rich.console import Console, Group
from support.build import cluster, made_plan, placed, plan_of, table, workload
from support.printed import line_of, text_of

from recsmith import plan
from recsmith.costs.published import error_of
from recsmith.reports.layout import BAD, GOOD, WATCH, line
from recsmith.reports.plan_summary import plan_summary, step_words
from recsmith.units import format_time
from recsmith.web.report_data import report_data

LABELS = ["plan", "step", "bound", "slowest", "trust"]


def labels(report: object) -> list[str]:
    assert isinstance(report, Group)
    return [each.label for each in report.renderables if isinstance(each, line)]


def test_five_lines_say_what_was_found(capsys: pytest.CaptureFixture[str]):
    made = plan("criteo-kaggle", "h100:4", planner="size_greedy").plan
    report = plan_summary(made, "plan.json")
    assert labels(report) == LABELS
    text = text_of(report, capsys)
    assert f"digest {made.digest[:16]}, written to plan.json" in " ".join(text.split())
    assert made.cost is not None
    low, high = error_of(made).interval(made.cost.step_s)
    assert low < made.cost.step_s < high
    assert high / made.cost.step_s == pytest.approx(made.cost.step_s / low)
    assert line_of("step", text).startswith(f"step     {format_time(made.cost.step_s)} predicted, typically ")
    assert line_of("step", text).endswith(format_time(high))
    assert report_data(made).plan.typically == line_of("step", text).partition("predicted, ")[2]
    assert "proven under this cost model, at most" in line_of("bound", text)
    assert f"rank {max(made.cost.per_device, key=lambda each: each.busy_s).rank}, mostly" in line_of("slowest", text)
    assert "trust    off by about" in text
    assert "cost model best, here neural:h100: " in " ".join(text.split())


def test_what_was_not_checked_is_no_interval_that_looks_checked():
    made = plan("criteo-kaggle", "a100-80:4", planner="size_greedy").plan
    error = error_of(made)
    assert error.unchecked
    assert step_words(made, error).endswith("perhaps further off")
    assert step_words(made, replace(error, share=0.0)).endswith("how far it may be off is not known")
    (trust,) = (each for each in plan_summary(made).renderables if isinstance(each, line) and each.label == "trust")
    assert WATCH in trust.style
    assert trust.text.startswith("not checked as a whole, cost model best, here fitted: ")


def test_a_note_says_that_training_differs_and_what_was_left_out(capsys: pytest.CaptureFixture[str]):
    tables = replace(workload(*(table(name) for name in "ab")), optimizer="rowwise_adagrad")
    split = plan_of(tables, cluster(), placed("a", "column_wise", [0, 1], [8, 24]), placed("b", "table_wise", [1]))
    report = plan_summary(split, left_out=("annealing: not compiled",))
    assert labels(report) == [*LABELS, "note", "note"]
    said = " ".join(text_of(report, capsys).split())
    assert "training differs from the unsharded model" in said
    assert "note annealing: not compiled" in said


def test_colours_say_how_good_it_is_and_leave_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch):
    near, far = (replace(made_plan(), gap=gap) for gap in (0.01, 3.0))
    styles = [{each.label: each.style for each in plan_summary(each).renderables if isinstance(each, line)}
              for each in (near, far)]  # fmt: skip
    assert [each["bound"] for each in styles] == [f"bold {GOOD}", f"bold {BAD}"]
    assert {each["plan"] for each in styles} == {"bold"}

    def printed() -> str:
        console = Console(force_terminal=True, color_system="standard", width=100)
        with console.capture() as captured:
            console.print(plan_summary(far))
        return captured.get()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mbound" in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in printed()
