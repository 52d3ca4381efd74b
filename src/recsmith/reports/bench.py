"""The table of a run as text for people."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from recsmith.bench.gains import LEAST_TASKS, WAYS, Figures, Gain, Verdict
from recsmith.bench.sharding import BenchResults
from recsmith.bench.table import ALL, GainTable, planning, references, tables_of
from recsmith.bench.visits import COMM_MODEL

WIDTH = 15  # characters of a planner's column


def table_lines(outcome: BenchResults) -> list[str]:
    """Everything that a run says."""
    tables = tables_of(outcome)
    return [
        *_heading(outcome),
        "",
        *_grid(outcome, tables[0]),
        "",
        *(line for table in tables for line in _verdict_lines(table)),
        *_few(tables[0]),
        *_notes(outcome),
    ]


def _heading(outcome: BenchResults) -> Iterator[str]:
    settings, measured = outcome.settings, list(outcome.measured.values())
    device = "; ".join(dict.fromkeys(visit.device for visit in measured))
    wanted = settings.tasks * len(settings.rows) * settings.visits
    yield f"hardware  {settings.hardware}: {device}" if device else f"hardware  {settings.hardware}"
    yield (
        f"tasks     {settings.tasks} a row, {len(measured):,} of {wanted:,} visits measured; "
        f"{settings.global_batch:,} samples of all devices; seed {settings.seed}"
    )
    kernels = "simulated" if settings.hardware.startswith("simulated:") else "measured"
    yield f"planned   under {settings.cost_model}; collectives are priced by {COMM_MODEL}, kernels are {kernels}"
    yield f"figures   how much longer steps take than {references(outcome)[0]}'s: mean over tasks, 95 % interval"
    yield "          ranks take their medians over visits"


def _grid(outcome: BenchResults, table: GainTable) -> Iterator[str]:
    others = [gain.planner for gain in table.ways[WAYS[0]][0].gains]
    heads = [_head(planner) for planner in others]
    for line in range(2):
        first = ("row", "tasks", "rejected", f"{table.reference[:5]}, ms")[: 4 * line] if line else ()
        yield _line([*first, *[""] * (4 - len(first))], [head[line] for head in heads])
    rejected = {str(row.row): f"{row.rejected:.1%}" for row in outcome.drawn}
    for row in table.ways[WAYS[0]]:
        step = "-" if row.step_s is None else f"{row.step_s * 1e3:.4g}"
        yield _line(
            [row.row, str(row.tasks), rejected.get(row.row, ""), step], [_value(gain, row.tasks) for gain in row.gains]
        )
        yield _line([""] * 4, [_range(gain) for gain in row.gains])
    medians = planning(outcome)
    yield _line(["plan", "CPU s", "median", f"{medians[table.reference]:.3g}"], [f"{medians[p]:.3g}" for p in others])


def _head(planner: str) -> tuple[str, str]:
    """A name in two lines; of a cost model of its own the last word."""
    name, at, model = planner.partition("@")
    first, _, last = name.rpartition("_")
    words = (name, f"@{PurePath(model.rpartition(':')[2]).stem}") if at else (first, last)
    return words[0][: WIDTH - 1], words[1][: WIDTH - 1]


def _line(cells: Sequence[str], more: Sequence[str]) -> str:
    text = f"{cells[0]:<7}{cells[1]:>5}{cells[2]:>10}{cells[3]:>10}" + "".join(f"{cell:>{WIDTH}}" for cell in more)
    return text.rstrip()


def _value(gain: Gain, tasks: int) -> str:
    """The figure; behind it how many tasks it is of, where the planner has no plan of some."""
    if gain.interval is None:
        return "-"
    fewer = f" ({gain.tasks})" if gain.tasks < tasks else ""
    return f"{gain.interval.value:+.1%}{fewer}"


def _range(gain: Gain) -> str:
    return "" if gain.interval is None else f"{gain.interval.low * 100:+.1f}..{gain.interval.high * 100:+.1f}"


def _verdict_lines(table: GainTable) -> Iterator[str]:
    said = {way: table.verdict(way) for way in WAYS}
    yield f"{table.reference}: {_verdict_words(said[WAYS[0]])}"
    yield f"  {_largest(table.ways[WAYS[0]])}"
    for way, words in (("fastest", "by the fastest visits"), ("kernels", "of kernels alone")):
        if (said[way].worse, said[way].better) != (said[WAYS[0]].worse, said[WAYS[0]].better):
            yield f"  {words}: {_verdict_words(said[way])}"


def _verdict_words(said: Verdict) -> str:
    worse = ", ".join(f"{planner} in {row}" for row, planner in said.worse) or "none"
    return (
        f"significantly worse than: {worse}; significantly better than the best of the four classic greedies in "
        f"{len(said.better)} of {said.rows} rows"
    )


def _largest(rows: Sequence[Figures]) -> str:
    best = [(row.row, row.best_greedy) for row in rows if row.row != ALL]
    pairs = [(gain.interval.value, row, gain.planner) for row, gain in best if gain and gain.interval]
    if not pairs:
        return "no classic greedy beside it"
    low, high = min(pairs), max(pairs)
    return f"the best classic greedy takes {low[0]:+.1%} ({low[2]}, {low[1]}) to {high[0]:+.1%} ({high[2]}, {high[1]})"


def _few(table: GainTable) -> Iterator[str]:
    if any(0 < row.tasks < LEAST_TASKS for row in table.ways[WAYS[0]]):
        yield f"rows of fewer than {LEAST_TASKS} tasks tell nothing apart; give more --tasks"


def _notes(outcome: BenchResults) -> Iterator[str]:
    for word in outcome.settings.planners:
        lost = [each for each in outcome.attempts.values() if each.planner == word and each.error]
        if lost:
            reasons = "; ".join(dict.fromkeys(each.error or "" for each in lost[:1]))
            yield f"{word}: no plan of {len(lost)} tasks, left out of its means: {reasons}"
    lost_tasks = sum(row.infeasible for row in outcome.drawn)
    if lost_tasks:
        yield f"{lost_tasks} tasks that were drawn are proved to have no plan; others were drawn instead"
    if not outcome.complete:
        yield "the run is not complete; the same command with the same folder goes on"
