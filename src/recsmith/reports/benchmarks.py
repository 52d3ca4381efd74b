"""Benchmarks of planners and of training, as lines and as plain data."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from recsmith.bench.gains import (
    ALL,
    CLASSIC,
    ESTIMATES,
    LEAST_TASKS,
    Gain,
    GainTable,
    GainVerdict,
    RowGains,
    planning_medians,
    references,
    row_gaps,
    tables_of,
)
from recsmith.bench.sharding import BenchResults
from recsmith.bench.visits import COMM_MODEL
from recsmith.files import Raw, encode
from recsmith.reports.layout import plain_line, plain_row, plus_minus
from recsmith.units import counted, format_size

if TYPE_CHECKING:
    from recsmith.training.results.variants import VariantRow

BENCH_SCHEMA = "recsmith/bench-sharding-result/1"
LABEL_WIDTH = 10  # characters of the label in heading lines
PLANNER_WIDTH = 15  # characters of a planner's column, which shows its name in two lines
FIRST_WIDTHS = (7, 5, 10, 10)  # characters of the columns before the planners'


def bench_lines(results: BenchResults) -> list[str]:
    """The table of gains over the first reference planner, and the verdict on each."""
    tables = tables_of(results)
    return [
        *_heading(results),
        "",
        *_grid(results, tables[0]),
        "",
        *(line for table in tables for line in _verdict_lines(table)),
        *_gap_lines(results, [gain.planner for gain in tables[0].main_rows[0].gains], tables[0].reference),
        *_few(tables[0]),
        *_notes(results),
    ]


def _heading(results: BenchResults) -> Iterator[str]:
    settings, measured = results.settings, list(results.measured.values())
    device = "; ".join(dict.fromkeys(visit.device for visit in measured))
    wanted = settings.tasks * len(settings.rows) * settings.visits
    yield _line("hardware", f"{settings.hardware}: {device}" if device else settings.hardware)
    yield _line(
        "tasks",
        f"{settings.tasks} a row, {len(measured):,} of {wanted:,} visits measured; "
        f"{settings.global_batch:,} samples of all devices; seed {settings.seed}",
    )
    kernels = "simulated" if settings.hardware.startswith("simulated:") else "measured"
    model = settings.cost_model
    yield _line("planned", f"under {model}; collectives are priced by {COMM_MODEL}, kernels are {kernels}")
    first = references(results)[0]
    yield _line("figures", f"how much longer steps take than {first}'s: mean over tasks, 95 % interval")
    yield _line("", "ranks take their medians over visits")


def _line(label: str, text: str) -> str:
    return plain_line(label, text, LABEL_WIDTH)


def _grid(results: BenchResults, table: GainTable) -> Iterator[str]:
    """Two lines per row: each planner's mean slowdown, and below it the interval; last, the planning times."""
    others = [gain.planner for gain in table.main_rows[0].gains]
    headings = [_heading_of(planner) for planner in others]
    yield _row((), [first for first, _ in headings])
    yield _row(("row", "tasks", "rejected", f"{table.reference[:5]}, ms"), [second for _, second in headings])
    rejected = {str(row.row): f"{row.rejected:.1%}" for row in results.drawn}
    for row in table.main_rows:
        step = "-" if row.step_s is None else f"{row.step_s * 1e3:.4g}"
        first = row.row, str(row.tasks), rejected.get(row.row, ""), step
        yield _row(first, [_value(gain, row.tasks) for gain in row.gains])
        yield _row((), [_range(gain) for gain in row.gains])
    medians = planning_medians(results)
    yield _row(("plan", "CPU s", "median", f"{medians[table.reference]:.3g}"), [f"{medians[p]:.3g}" for p in others])


def _heading_of(planner: str) -> tuple[str, str]:
    """A planner's name in two lines; the second has its options, its policy, or its cost model's last word."""
    if "?" in planner:
        first, _, options = planner.partition("?")
        return first[: PLANNER_WIDTH - 1], f"?{options}"[: PLANNER_WIDTH - 1]
    if ":" in planner.partition("@")[0]:
        first, _, policy = planner.partition(":")
        return first[: PLANNER_WIDTH - 1], f":{PurePath(policy).stem}"[: PLANNER_WIDTH - 1]
    name, at, model = planner.partition("@")
    first, _, last = name.rpartition("_")
    two = (name, f"@{PurePath(model.rpartition(':')[2]).stem}") if at else (first, last)
    return two[0][: PLANNER_WIDTH - 1], two[1][: PLANNER_WIDTH - 1]


def _row(first: Sequence[str], planners: Sequence[str]) -> str:
    """A row of the table; if `first` is empty, its cells are blank."""
    cells = [*(first or [""] * len(FIRST_WIDTHS)), *planners]
    return plain_row(cells, (*FIRST_WIDTHS, *[PLANNER_WIDTH] * len(planners))).rstrip()


def _value(gain: Gain, tasks: int) -> str:
    """The mean slowdown; followed by the number of tasks if the planner has no plan for some of them."""
    if gain.interval is None:
        return "-"
    fewer = f" ({gain.tasks})" if gain.tasks < tasks else ""
    return f"{gain.interval.value:+.1%}{fewer}"


def _range(gain: Gain) -> str:
    return "" if gain.interval is None else f"{gain.interval.low * 100:+.1f}..{gain.interval.high * 100:+.1f}"


def _verdict_lines(table: GainTable) -> Iterator[str]:
    said = {each: table.verdict(each) for each in ESTIMATES}
    main = said[ESTIMATES[0]]
    ran = {gain.planner for row in table.main_rows for gain in row.gains if gain.planner in CLASSIC and gain.interval}
    yield f"{table.reference}: {verdict_words(main, len(ran))}"
    yield f"  {_best_greedy_words(table.main_rows)}"
    for name, estimate in (("fastest", "by the fastest visits"), ("kernels", "of kernels alone")):
        if (said[name].worse, said[name].better) != (main.worse, main.better):
            yield f"  {estimate}: {verdict_words(said[name], len(ran))}"


def verdict_words(said: GainVerdict, classics: int) -> str:
    """Which differences are significant. classics: number of classic greedy planners that have a figure."""
    worse = ", ".join(f"{planner} in {row}" for row, planner in said.worse) or "none"
    if not classics:
        return f"significantly worse than: {worse}"
    which = {1: "the only classic greedy", len(CLASSIC): "the best of the four classic greedies"}
    best = which.get(classics, f"the best of {classics} classic greedies")
    return (
        f"significantly worse than: {worse}; significantly better than {best} in "
        f"{len(said.better)} of {counted(said.rows, 'row')}"
    )


def _best_greedy_words(rows: Sequence[RowGains]) -> str:
    best = [(row.row, row.best_greedy) for row in rows if row.row != ALL]
    pairs = [(gain.interval.value, row, gain.planner) for row, gain in best if gain and gain.interval]
    if not pairs:
        return "no classic greedy beside it"
    low, high = min(pairs), max(pairs)
    return f"the best classic greedy takes {low[0]:+.1%} ({low[2]}, {low[1]}) to {high[0]:+.1%} ({high[2]}, {high[1]})"


def _gap_lines(results: BenchResults, others: Sequence[str], reference: str) -> Iterator[str]:
    """How far plans are above the bound, by the run's cost model; nothing if the run has no bounds."""
    if not results.bounds:
        return
    yield ""
    yield f"above the bound, by {results.settings.cost_model}: mean over tasks"
    for row in results.drawn:
        gaps = row_gaps(results, row)
        shown = {planner: f"{gap:.1%}" for planner, gap in gaps.items()}
        cells = [str(row.row), "", "", shown.get(reference, "-"), *(shown.get(planner, "-") for planner in others)]
        yield plain_row(cells, (*FIRST_WIDTHS, *[PLANNER_WIDTH] * len(others))).rstrip()
    yield ""


def _few(table: GainTable) -> Iterator[str]:
    if any(0 < row.tasks < LEAST_TASKS for row in table.main_rows):
        yield f"rows of fewer than {LEAST_TASKS} tasks tell nothing apart; give more --tasks"


def _notes(results: BenchResults) -> Iterator[str]:
    for word in results.settings.planners:
        failed = [each for each in results.attempts.values() if each.planner == word and each.error]
        if failed:
            reasons = "; ".join(dict.fromkeys(each.error or "" for each in failed[:1]))
            yield f"{word}: no plan of {len(failed)} tasks, left out of its means: {reasons}"
    lost_tasks = sum(row.infeasible for row in results.drawn)
    if lost_tasks:
        yield f"{lost_tasks} tasks that were drawn are proved to have no plan; others were drawn instead"
    if not results.complete:
        yield "the run is not complete; the same command with the same folder goes on"


def bench_to_raw(results: BenchResults) -> Raw:
    """A benchmark run as plain data, with schema recsmith/bench-sharding-result/1."""
    tables = tables_of(results)
    return {
        "schema": BENCH_SCHEMA,
        "settings": encode(results.settings),
        "complete": results.complete,
        "device": sorted({task.device for task in results.measured.values()}),
        "versions": sorted({task.versions for task in results.measured.values()}),
        "measured_s": sum(task.elapsed_s for task in results.measured.values()),
        "planned_s": sum(each.plan_s for each in results.attempts.values()),
        "plan_cpu_s": {word: seconds for word, seconds in planning_medians(results).items() if seconds == seconds},
        "drawn": [
            {"row": str(row.row), "rejected": row.rejected, "degenerate": row.degenerate, "infeasible": row.infeasible}
            for row in results.drawn
        ],
        "without_plan": [
            {"task": task, "planner": planner, "error": each.error}
            for (task, planner), each in sorted(results.attempts.items())
            if each.error
        ],
        **({"gaps": {str(row.row): row_gaps(results, row) for row in results.drawn}} if results.bounds else {}),
        "tables": [
            {
                "reference": table.reference,
                **{each: [encode(row) for row in rows] for each, rows in table.rows.items()},
                "verdict": {each: encode(table.verdict(each)) for each in ESTIMATES},
            }
            for table in tables
        ],
    }


def variant_lines(rows: Sequence["VariantRow"]) -> list[str]:
    """A line for each variant: speed, parts of a step, bytes, memory, and scores with 95 % intervals over seeds.

    The speed is followed by its ratio to the first variant's, seed by seed: the median, the least and the most.
    """
    width = max(len(row.name) for row in rows)
    speed = f"{'samples/s':>10} {'beside first':>18}"
    columns = f"{'data':>8} {'forward':>9} {'backward':>9} {'sent/step':>10} {'memory':>10}"
    head = f"{'':{width}}  {speed} {columns}  AUC, NE"
    return [head, *(_variant_line(row, width) for row in rows)]


def _variant_line(row: "VariantRow", width: int) -> str:
    parts = (row.data_s, row.forward_s, row.backward_s)
    times = " ".join(f"{seconds * 1e3:{size}.2f}ms" for seconds, size in zip(parts, (6, 7, 7), strict=True))
    return (
        f"{row.name:{width}}  {row.samples_per_s:10,.0f} {_faster(row.faster):>18} {times} "
        f"{format_size(row.sent_bytes):>10} {format_size(row.peak_bytes):>10}  "
        f"{plus_minus(row.auc, row.auc_within, '.5f')}, {plus_minus(row.ne, row.ne_within, '.5f')}"
    )


def _faster(ratios: tuple[float, float, float] | None) -> str:
    """The median ratio, and the range of all seeds."""
    return "" if ratios is None else f"{ratios[1]:.2f} ({ratios[0]:.2f}-{ratios[2]:.2f})"
