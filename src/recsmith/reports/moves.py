"""Plans made anew from old ones, and checkpoints moved to the shards of another plan: as text and as plain data."""

import csv
import io
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.adapters.reshard import Resharded, TableChange
from recsmith.analyses.replan_curve import CurvePoint, ReplanCurve
from recsmith.files import Raw, encode
from recsmith.planning.replan import Replanned
from recsmith.plans import Plan, plan_to_raw
from recsmith.reports.layout import add_first, grid, line
from recsmith.reports.plans import model_words, plan_report
from recsmith.units import counted, format_gap, format_size, format_speed, format_time

CURVE_COLUMNS = (
    "max_moved_bytes", "moved_bytes", "new_bytes", "staying_bytes", "slowest_receives_bytes",
    "step_s", "gap", "total_s", "recommended", "error",
)  # fmt: skip
CURVE_HEADINGS = ("may move", "moves", "share", "step", "than first", "gap", "move and\nsteps left", "")
RESHARDED_SCHEMA = "recsmith/resharded/1"
MOST_TABLES = 40  # rows shown: about a screen; tables whose state changed are listed first
MEANINGS = {
    "exact": "bit for bit",
    "replicated": "replicated: columns were split, and each part begins with the whole's number of a row",
    "averaged": "averaged: columns were merged, and take the mean of their numbers of a row, by width",
    "reset": "reset: another kind of optimizer keeps it now, and it begins anew",
    "new": "new: of tables that were added",
}


def replan_report(old: Plan, name: str, found: Replanned | ReplanCurve, output: str | None) -> RenderableType:
    """What a new plan moves and costs, or a row for each limit of a curve. name: the old plan's file."""
    if isinstance(found, ReplanCurve):
        return _curve_report(old, name, found, output)
    result = found.result
    tries = counted(result.iterations, "try", "tries")
    written = f", written to {output}" if output else ""
    run = f"planner {result.plan.planner}, {tries}, {result.elapsed_s:.2f} s{written}"
    return Group(*_replan_lines(old, name, found), plan_report(result.plan, run))


def _replan_lines(old: Plan, name: str, found: Replanned) -> list[RenderableType]:
    new = f"; {format_size(found.new_bytes)} of new tables are made" if found.new_bytes else ""
    return [
        line("old", f"{name}: {format_time(old.cost.step_s)}, for its own tables and devices"),
        line("moves", f"{_moves_words(found)} of the weights that stay{new}"),
    ]


def _moves_words(found: Replanned) -> str:
    return f"{format_size(found.moved_bytes)} ({_share(found)})"


def _share(found: Replanned) -> str:
    return f"{found.moved_bytes / found.staying_bytes:.2%}" if found.staying_bytes else "-"


def point_words(point: CurvePoint) -> str:
    """A point of a curve in one line: its limit, the step, and the weights that move."""
    limit = f"at most {format_size(point.max_moved_bytes)}"
    if point.replanned is None:
        return f"{limit}: no plan found"
    step = format_time(point.replanned.result.plan.cost.step_s)
    return f"{limit}: {step}, moves {_moves_words(point.replanned)}"


def _curve_report(old: Plan, name: str, curve: ReplanCurve, output: str | None) -> RenderableType:
    plans = [point.replanned for point in curve.points if point.replanned is not None]
    first = plans[0].result.plan
    made = grid(right=CURVE_HEADINGS, optional=("share", "than first"))
    for number, point in enumerate(curve.points):
        made.add_row(*_curve_row(point, first.cost.step_s, is_best=number == curve.recommended))
    lines = [
        line("old", f"{name}: {format_time(old.cost.step_s)}, for its own tables and devices"),
        line("cluster", first.cluster.describe()),
        line("stays", f"{format_size(plans[0].staying_bytes)} of weights are of tables that stay"),
        line("search", f"planner {first.planner}, cost model {model_words(first.cost_model, first)}, predicted"),
        *([line("pays", _pays_words(curve, output))] if curve.recommended is not None else []),
        *(line("note", point.error) for point in curve.points if point.error),
    ]
    return Group(*lines, made)


def _pays_words(curve: ReplanCurve, output: str | None) -> str:
    """Which point of the curve is recommended, and why."""
    best = curve.best
    link, steps = format_speed(curve.link_bandwidth), counted(curve.steps_left or 0, "step")
    written = f"; written to {output}" if output else ""
    return (
        f"moving {_moves_words(best)}: with {steps} left, and {link} into each device, steps and move together take "
        f"least{written}"
    )


def _curve_row(point: CurvePoint, first_s: float, *, is_best: bool) -> tuple[str, ...]:
    found = point.replanned
    limit = format_size(point.max_moved_bytes)
    if found is None:
        return limit, "no plan found", *[""] * 6
    cost = found.result.plan.cost.step_s
    total = "-" if point.total_s is None else format_time(point.total_s)
    return (
        limit, format_size(found.moved_bytes), _share(found), format_time(cost), f"{cost / first_s - 1:+z.2%}",
        format_gap(found.result.plan.gap), total, "pays" if is_best else "",
    )  # fmt: skip


def replan_to_raw(found: Replanned | ReplanCurve) -> Raw:
    """A plan and its moves, or a curve, as plain data; curves omit the plans themselves."""
    if isinstance(found, Replanned):
        rest = {key: value for key, value in encode(found).items() if key != "result"}
        return {"plan": plan_to_raw(found.result.plan), **rest}
    return {
        "points": [
            dict(zip(CURVE_COLUMNS, _curve_values(found, number), strict=True)) for number in range(len(found.points))
        ],
        "link_bandwidth": found.link_bandwidth,
        "steps_left": found.steps_left,
    }


def curve_to_csv(curve: ReplanCurve) -> str:
    """A CSV line for each point of a curve, with the columns of the JSON output."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    writer.writerows(
        ["" if value is None else value for value in _curve_values(curve, number)]
        for number in range(len(curve.points))
    )
    return text.getvalue()


def _curve_values(curve: ReplanCurve, number: int) -> tuple[object, ...]:
    point, found = curve.points[number], curve.points[number].replanned
    if found is None:
        return point.max_moved_bytes, *[None] * 7, False, point.error
    plan = found.result.plan
    return (
        point.max_moved_bytes, found.moved_bytes, found.new_bytes, found.staying_bytes, found.slowest_receives_bytes,
        plan.cost.step_s, plan.gap, point.total_s, number == curve.recommended, None,
    )  # fmt: skip


def reshard_report(report: Resharded) -> RenderableType:
    """Bytes written, which entries are exact and which are not, and each table."""
    states = Counter(state.change for table in report.tables for state in table.states)
    resumed = f" ({format_size(report.resumed_bytes)} by an earlier run)" if report.resumed_bytes else ""
    lines = [
        line("written", f"{report.output}: {format_size(report.written_bytes)}{resumed}"),
        line("weights", "bit for bit"),
        *(line("state", f"{counted(states[change], 'entry', 'entries')} {MEANINGS[change]}") for change in MEANINGS
          if states[change]),
        line("other", f"{counted(report.untouched, 'entry', 'entries')} untouched, dense parameters among them"),
        line("plan", f"fingerprint {report.fingerprint[:12]}"),
    ]  # fmt: skip
    made = grid(left=("table", "before", "after", "state"), right=("bytes",))
    ordered = sorted(report.tables, key=lambda each: (each.exact, each.before is not None and each.after is not None))
    add_first(made, [_table_row(each) for each in ordered], MOST_TABLES)
    return Group(*lines, made)


def _table_row(change: TableChange) -> Sequence[str]:
    states = ", ".join(f"{state.name} {state.change}" for state in change.states) or "-"
    return change.table, change.before or "(added)", change.after or "(removed)", states, format_size(change.bytes)


def reshard_to_raw(report: Resharded) -> Raw:
    """A reshard report as plain data, with schema recsmith/resharded/1."""
    return {"schema": RESHARDED_SCHEMA, **encode(report)}
