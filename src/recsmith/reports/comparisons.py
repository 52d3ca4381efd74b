"""Comparisons of planners: as text for people, and as plain data."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from recsmith.analyses.compare import BASELINE
from recsmith.analyses.comparison import Comparison, Judgement, PlannerRow
from recsmith.analyses.sensitivity import Spread
from recsmith.files import Raw, encode
from recsmith.reports.layout import grid, line
from recsmith.units import counted, format_gap, format_size, format_time

COMPARISON_SCHEMA = "recsmith/comparison/1"


def comparison_report(comparison: Comparison) -> RenderableType:
    """Planners and the baseline as rows, what each judge says of them as columns, and who is best."""
    plan = next(iter(comparison.plans.values()))
    work, weights = plan.workload, format_size(plan.workload.weight_bytes)
    lines = [
        line(
            "workload",
            f"{counted(len(work.tables), 'table')}, {weights} of weights; {work.batch_size:,} samples a device",
        ),
        line("cluster", plan.cluster.describe()),
        line("search", f"under cost model {comparison.judges[0]}; steps are predicted, not measured; gaps are proven"),
        line("space", plan.bound.space),
        line("verdict", comparison.verdict),
        *_baseline_line(comparison),
        *(line("note", words) for row in comparison.rows for words in _notes(row)),
    ]
    return Group(*lines, _comparison_grid(comparison))


def _baseline_line(comparison: Comparison) -> list[Text]:
    """What the best planner's plan would save of the running job's step."""
    rows = {row.name: row for row in comparison.rows if row.judgements}
    best = next((row for row in rows.values() if row.name != BASELINE and row.fits), None)
    if best is None or BASELINE not in rows:
        return []
    pairs = zip(rows[BASELINE].judgements, best.judgements, strict=True)
    saved = ", ".join(
        f"{new.total_s / old.total_s - 1:+.1%} under {new.cost_model}" for old, new in pairs if old.total_s
    )
    return [line("change", f"from {BASELINE} to {best.name} the step changes by {saved}")]


def _notes(row: PlannerRow) -> Iterator[str]:
    """Why a planner has no plan, or one that does not count."""
    if row.error:
        yield f"{row.name}: {row.error}"
    elif not row.fits:
        where = (
            f"{row.overfull} devices need" if row.overfull > 1 else "a device needs" if row.overfull else "hosts need"
        )
        yield f"{row.name} does not fit: {where} more memory than there is, so it is not counted as best"


def _comparison_grid(comparison: Comparison) -> Grid:
    judged = [name for judge in comparison.judges for name in (f"{judge}:\nstep", "\ngap", "\nover best")]
    spread = next(row.sensitivity for row in comparison.rows if row.sensitivity)
    made = grid(left=("planner",), right=("search", *judged, f"if pooling is off\nby up to {spread.off:.0%}"))
    for row in comparison.rows:
        if row.judgements:
            said = [word for judgement in row.judgements for word in _judgement_words(judgement)]
            made.add_row(row.name, _search_words(row), *said, _spread_words(row.sensitivity, row.judgements[0]))
        else:
            made.add_row(row.name, _search_words(row), "no plan")
    return made


def _search_words(row: PlannerRow) -> str:
    return "runs now" if row.search_s is None else f"{row.search_s:.2f} s{' (cut)' if row.truncated else ''}"


def _judgement_words(judgement: Judgement) -> tuple[str, str, str]:
    over = judgement.over_best
    best = "-" if over is None else "best" if over == 0 else f"{over:+.1%}"
    return format_time(judgement.total_s), format_gap(judgement.gap), best


def _spread_words(spread: Spread | None, judgement: Judgement) -> str:
    if spread is None or not judgement.total_s:
        return "-"
    median, high = spread.median_s / judgement.total_s - 1, spread.p95_s / judgement.total_s - 1
    return f"{median:+.1%} (95th {high:+.1%})"


def comparison_to_raw(comparison: Comparison) -> Raw:
    """Plain data of a comparison: schema recsmith/comparison/1."""
    return {
        "schema": COMPARISON_SCHEMA,
        "verdict": comparison.verdict,
        "judges": list(comparison.judges),
        "rows": [encode(row) for row in comparison.rows],
    }
