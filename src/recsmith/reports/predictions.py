"""A predicted step: its time, what it consists of, and what each rank does; as text, and as plain data."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.files import Raw
from recsmith.prediction.overheads import WHAT
from recsmith.prediction.predict import Prediction
from recsmith.reports.layout import grid, line
from recsmith.units import format_time

PREDICTION_SCHEMA = "recsmith/prediction/1"
MOST_TERMS = 5  # terms shown in the text; the JSON has all
MOST_RANKS = 16  # ranks shown in the text; the JSON has all


def prediction_report(found: Prediction) -> RenderableType:
    """The predicted step, its largest terms, and each rank's times."""
    base = found.unchanged_s
    if base is None:
        lines = [line("step", f"{format_time(found.step_s)}{_beside(found)}")]
    else:
        changed = f"{format_time(found.step_s)} with the changes, and {format_time(base)} without"
        lines = [line("what if", f"{changed}, both predicted: {found.step_s / base - 1:+z.1%}"),
                 line("step", f"{format_time(base)} without the changes{_beside(found)}")]  # fmt: skip
    lines += [line("", f"{note}") for note in found.notes]
    terms = grid(left=("on the critical path",), right=("time", "of the step"))
    for name, seconds in list(found.terms.items())[:MOST_TERMS]:
        terms.add_row(term_words(name), format_time(seconds), f"{seconds / max(found.step_s, 1e-12):.1%}")
    rest = list(found.terms.values())[MOST_TERMS:]
    if rest:
        terms.add_row(f"{len(rest)} others", format_time(sum(rest)), f"{sum(rest) / max(found.step_s, 1e-12):.1%}")
    ranks = grid(right=("rank", "active", "communication alone", "idle"))
    for each in found.ranks[:MOST_RANKS]:
        ranks.add_row(str(each.rank), *map(format_time, (each.active_s, each.exposed_comm_s, each.idle_s)))
    if found.ranks[MOST_RANKS:]:
        ranks.add_row("…", f"{len(found.ranks) - MOST_RANKS} more", "", "")
    return Group(*lines, terms, ranks)


def _beside(found: Prediction) -> str:
    """What the step without changes is compared with: the measured step, or the sum of all kernels."""
    if found.measured_s is None:
        return "" if found.unchanged_s else f"; all kernels and collectives one by one: {format_time(found.kernels_s)}"
    off = (found.unchanged_s or found.step_s) / found.measured_s - 1
    return f"; measured without the profiler: {format_time(found.measured_s)} ({off:+z.1%})"


def term_words(name: str) -> str:
    """A term of the critical path in words."""
    return f"{name}, {WHAT[name]}" if name in WHAT else name.replace("_", " ")


def sweep_report(rows: Sequence[tuple[int, Prediction]]) -> RenderableType:
    """Steps for several batch sizes, one row each, and their notes."""
    changed = any(found.unchanged_s is not None for _, found in rows)
    names = ("batch a rank", *(("without changes",) if changed else ()), "step", "samples/s", "active",
             "communication alone", "idle", "largest term")  # fmt: skip
    made = grid(right=names, optional=("idle", "active", "communication alone", "largest term"))
    for batch, found in rows:
        worst = max(found.ranks, key=lambda each: each.active_s)
        rate = batch * len(found.ranks) / found.step_s
        largest = term_words(next(iter(found.terms), "-"))
        before = [format_time(found.unchanged_s or found.step_s)] if changed else []
        made.add_row(f"{batch:,}", *before, format_time(found.step_s), f"{rate:,.0f}",
                     *map(format_time, (worst.active_s, worst.exposed_comm_s, worst.idle_s)), largest)  # fmt: skip
    noted = {note: [batch for batch, found in rows if note in found.notes] for _, each in rows for note in each.notes}
    lines = [
        line("note", note if len(batches) == len(rows) else f"at {', '.join(f'{each:,}' for each in batches)}: {note}")
        for note, batches in noted.items()
    ]
    return Group(*lines, made)


def sweep_to_raw(rows: Sequence[tuple[int, Prediction]]) -> Raw:
    """Predictions for several batch sizes as plain data: schema recsmith/prediction/1."""
    found = [{"batch_size": batch, **prediction_to_raw(each)} for batch, each in rows]
    return {"schema": PREDICTION_SCHEMA, "sweep": found}


def prediction_to_raw(found: Prediction) -> Raw:
    """A prediction as plain data: schema recsmith/prediction/1."""
    return {
        "schema": PREDICTION_SCHEMA,
        "step_s": found.step_s,
        "unchanged_s": found.unchanged_s,
        "measured_s": found.measured_s,
        "sum_of_kernels_s": found.kernels_s,
        "terms": dict(found.terms),
        "ranks": [{name: getattr(each, name) for name in type(each).__dataclass_fields__} for each in found.ranks],
        "notes": list(found.notes),
    }
