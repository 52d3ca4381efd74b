"""Comparisons of planners, and plans for many clusters: as text for people, as plain data, and as CSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby

from rich.console import Group, RenderableType

from recsmith.analyses.compare import BASELINE, Comparison, Judgement, PlannerRow, published_error_of, ties
from recsmith.analyses.data_types import DataTypeForm
from recsmith.analyses.scaling import Fewest, Fixed, Knee, Point, Sweep
from recsmith.analyses.sensitivity import Spread
from recsmith.costs.published import error_of
from recsmith.errors import printable
from recsmith.files import Raw, encode, starts_with_schema
from recsmith.problems.space import space_words
from recsmith.reports.layout import Grid, grid, line
from recsmith.reports.plans import error_line, kernel_model, model_words
from recsmith.units import counted, format_gap, format_size, format_time

DATA_TYPES_SCHEMA = "recsmith/data_types/1"
COMPARISON_SCHEMA = "recsmith/comparison/1"
SWEEP_SCHEMA = "recsmith/sweep/1"
GROUP_COLUMNS = ("group_size", "sync_s")  # last columns of the CSV, in sweeps of 2D jobs
COLUMNS = tuple(field.name for field in fields(Point) if field.name not in GROUP_COLUMNS)  # of the CSV, in this order
HEADINGS = (
    "devices", "hosts", "batch", "global\nbatch", "step", "bound", "gap", "memory", "samples\na second",
    "device time\na step", "\na million", "planned\nin", "",
)  # fmt: skip
GROUP_HEADINGS = ("group", "sync", "devices", *HEADINGS[2:])  # for sweeps of 2D jobs, without the number of hosts
OPTIONAL = ("planned\nin", "\na million", "device time\na step", "global\nbatch", "hosts", "sync", "memory", "bound")
STEPS = "steps are those of the embeddings, predicted, not measured; bounds are proven under it"
OUTCOMES = {"infeasible": "infeasible", "not_found": "no plan found", "refused": "refused"}


def comparison_report(comparison: Comparison) -> RenderableType:
    """Planners and the baseline as rows, each judge's results as columns, and which planner is best."""
    plan = next(iter(comparison.plans.values()))
    model = model_words(comparison.judges[0], plan)
    work, weights = plan.workload, format_size(plan.workload.weight_bytes)
    lines = [
        line(
            "workload",
            f"{counted(len(work.tables), 'table')}, {weights} of weights; "
            f"{counted(work.batch_size, 'sample')} a device",
        ),
        line("cluster", plan.cluster.describe()),
        line("search", f"under cost model {model}; steps are predicted, not measured; gaps are proven under it"),
        line("bounds", f"valid for {space_words(plan.bound.space)}"),
        line("verdict", comparison.verdict),
        *_error_lines(comparison),
        *_baseline_line(comparison),
        *(line("note", text) for row in comparison.rows for text in _notes(row)),
    ]
    return Group(*lines, _comparison_grid(comparison))


def _error_lines(comparison: Comparison) -> Iterator[line]:
    """The prediction error, and which plans differ from the best by less than that."""
    found, tied = published_error_of(comparison), ties(comparison)
    yield from error_line(found)
    if tied:
        yield line("ties", f"{', '.join(tied)} may be as good: the model is not exact enough to tell ({found.apart})")


def _baseline_line(comparison: Comparison) -> list[line]:
    """How much shorter the running job's step becomes under the best planner's plan."""
    rows = {row.name: row for row in comparison.rows if row.judgements}
    best = next((row for row in rows.values() if row.name != BASELINE and row.fits), None)
    if best is None or BASELINE not in rows:
        return []
    pairs = zip(rows[BASELINE].judgements, best.judgements, strict=True)
    saved = ", ".join(
        f"{new.total_s / old.total_s - 1:+z.1%} under {new.cost_model}" for old, new in pairs if old.total_s
    )
    return [line("change", f"from {BASELINE} to {best.name} the step changes by {saved}")]


def _notes(row: PlannerRow) -> Iterator[str]:
    """Why a planner has no plan, or why its plan cannot be the best."""
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
    off = f"if pooling is off\nby up to {spread.off:.0%}"
    made = grid(left=("planner",), right=("search", *judged, off), optional=(off, "search", "\ngap", "\nover best"))
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
    best = "-" if over is None else "best" if over == 0 else f"{over:+z.1%}"
    return format_time(judgement.total_s), format_gap(judgement.gap), best


def _spread_words(spread: Spread | None, judgement: Judgement) -> str:
    if spread is None or not judgement.total_s:
        return "-"
    median, high = spread.median_s / judgement.total_s - 1, spread.p95_s / judgement.total_s - 1
    return f"{median:+z.1%} (95th {high:+z.1%})"


def comparison_to_raw(comparison: Comparison) -> Raw:
    """Plain data of a comparison: schema recsmith/comparison/1."""
    return {
        "schema": COMPARISON_SCHEMA,
        "verdict": comparison.verdict,
        "judges": list(comparison.judges),
        "rows": [encode(row) for row in comparison.rows],
        **({"ties": list(tied)} if (tied := ties(comparison)) else {}),
    }


def sweep_report(sweep: Sweep) -> RenderableType:
    """A row for each point, grouped by device type and batch, with knees, and why some points have no plan."""
    work, weights = sweep.workload, format_size(sweep.workload.weight_bytes)
    lines = [
        line("workload", f"{counted(len(work.tables), 'table')}, {weights} of weights"),
        line("search", f"planner {sweep.planner}, cost model {_model_words_of(sweep)}; {STEPS}"),
        line("bounds", f"valid for {space_words(sweep.space)}"),
        *(line("fewest", fewest_words(each, sweep.fixed)) for each in sweep.fewest),
        *(line("knee", knee_words(knee, sweep.fixed)) for knee in sweep.knees),
        *(line("note", text) for text in _reasons(sweep)),
    ]
    return Group(*lines, _points_grid(sweep))


def _model_words_of(sweep: Sweep) -> str:
    """The cost model of a sweep; for the mixed one, also the models that price its devices' kernels."""
    of_kernels = {kernel_model(sweep.cost_model, plan): None for plan in sweep.plans.values()}  # an ordered set
    named = [model for model in of_kernels if model != sweep.cost_model]
    return f"{sweep.cost_model}, here {' and '.join(named)}" if named else sweep.cost_model


def knee_words(knee: Knee, fixed: Fixed) -> str:
    """Where the knee is, and why more devices do not pay."""
    batch = f"{knee.size:,} samples {'a device' if fixed == 'batch_size' else 'a step'}"
    count = counted(knee.devices, "device")
    few = ", the fewest here" if knee.fewest else ""
    group = f", sharding groups of {knee.group_size:,}" if knee.group_size else ""
    proven = "; proven" if knee.proven else ""
    return f"{knee.device}:{knee.per_host}, {batch}{group}: {count}{few}; {_beyond(knee)}{proven}"


def fewest_words(found: Fewest, fixed: Fixed) -> str:
    """The fewest devices whose step is short enough, and what is known about the next smaller number."""
    batch = f"{found.size:,} samples {'a device' if fixed == 'batch_size' else 'a step'}"
    group = f", sharding groups of {found.group_size:,}" if found.group_size else ""
    asked = f"{found.device}:{found.per_host}, {batch}{group}, a step of {format_time(found.limit_s)} at most"
    if found.devices is None or found.hosts is None or found.total_s is None:
        return f"{asked}: none of those that were tried"
    answer = f"{counted(found.devices, 'device')} ({counted(found.hosts, 'host')}), {format_time(found.total_s)}"
    if found.fewer is None:
        return f"{asked}: {answer}; the fewest that could be asked for"
    beyond = "cannot, proven" if found.proven else "have no such plan that was found"
    return f"{asked}: {answer}; {found.fewer:,} {beyond}"


def _beyond(knee: Knee) -> str:
    if knee.next_devices is None or knee.pays_from is None:
        return "the most here, so more may pay too"
    if knee.next_speedup is None:
        return f"{knee.next_devices:,} are no faster"
    return (
        f"{knee.next_devices:,} give {knee.next_speedup:.2f} x the samples a second "
        f"(more than {knee.pays_from:.2f} x would pay)"
    )


def point_words(point: Point) -> str:
    """The name of a point: device and devices per host, number of devices, local batch."""
    count = counted(point.devices, "device")
    group = f", sharding groups of {point.group_size:,}" if point.group_size else ""
    return f"{point.device}:{point.per_host}, {count}, batch {point.batch_size:,}{group}"


def _reasons(sweep: Sweep) -> Iterator[str]:
    yield from (f"{point_words(point)}: {point.error}" for point in sweep.points if point.error)


def _points_grid(sweep: Sweep) -> Grid:
    grouped = _is_grouped(sweep)
    made = grid(left=("device",), right=GROUP_HEADINGS if grouped else HEADINGS, optional=OPTIONAL, tight=True)
    for _, series in groupby(sweep.points, key=lambda p: (p.device, p.per_host, getattr(p, sweep.fixed))):
        for point in series:
            made.add_row(*(_group_cells(point) if grouped else _cells(point)))
        made.add_section()
    return made


def _cells(point: Point) -> tuple[str, ...]:
    counts = (point.devices, point.hosts, point.batch_size, point.global_batch_size)
    where = (f"{point.device}:{point.per_host}", *(f"{count:,}" for count in counts))
    took = f"{point.elapsed_s:.1f} s"
    if point.error:
        return *where, OUTCOMES[point.outcome], *[""] * 6, took, ""
    return (
        *where, _time(point.total_s), _time(point.bound_s), format_gap(point.gap), _share(point.memory_share),
        _rate(point.samples_per_s), _time(point.device_s_per_step), _time(point.device_s_per_million),
        took, ", ".join(word for word, holds in (("knee", point.knee), ("cut", point.truncated)) if holds),
    )  # fmt: skip


def _is_grouped(sweep: Sweep) -> bool:
    return any(point.group_size for point in sweep.points)


def _group_cells(point: Point) -> tuple[str, ...]:
    device, devices, _, *others = _cells(point)
    return device, f"{point.group_size or point.devices:,}", _time(point.sync_s), devices, *others


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_time(seconds)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rate(per_second: float | None) -> str:
    """Samples per second with four significant digits, in thousands (k) or millions (M)."""
    if per_second is None:
        return "-"
    scale, letter = (1e6, " M") if per_second >= 1e6 else (1e3, " k") if per_second >= 1e3 else (1.0, "")
    return f"{per_second / scale:.4g}{letter}"


def sweep_to_raw(sweep: Sweep) -> Raw:
    """A sweep as plain data, with schema recsmith/sweep/1."""
    return {
        "schema": SWEEP_SCHEMA,
        "planner": sweep.planner,
        "cost_model": sweep.cost_model,
        "space": sweep.space,
        "fixed": sweep.fixed,
        "left": sweep.left,
        "knees": [encode(knee) for knee in sweep.knees],
        "points": [encode(point) for point in sweep.points],
        **({"fewest": [encode(each) for each in sweep.fewest]} if sweep.fewest else {}),
    }


def sweep_to_csv(sweep: Sweep) -> str:
    """A CSV line for each point, with the fields of a point in JSON as columns; missing values are empty.

    Sweeps of 2D jobs have two more columns.
    """
    text = io.StringIO()
    columns = (*COLUMNS, *GROUP_COLUMNS) if _is_grouped(sweep) else COLUMNS
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in encode(point).items()} for point in sweep.points)
    return text.getvalue()


def sweep_file(as_csv: bool) -> bytes:
    """How sweep files begin, as a regular expression: only such files may be overwritten by `-o`."""
    return re.escape(",".join(COLUMNS)).encode() if as_csv else starts_with_schema(SWEEP_SCHEMA)


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return printable(value) if isinstance(value, str) else value


def data_types_report(forms: Sequence[DataTypeForm]) -> RenderableType:
    """Forms of storing the tables as rows: bytes, fewest devices that hold them, fullest device, and step."""
    plan = forms[0].plan
    model = model_words(plan.cost_model, plan)
    lines = [
        line("workload", f"{counted(len(plan.workload.tables), 'table')} under {plan.workload.optimizer}"),
        line("cluster", plan.cluster.describe()),
        line("steps", f"of cost model {model}, predicted; devices: the fewest for which a plan was found"),
        *error_line(error_of(plan)),
    ]
    table = grid(
        left=("tables",), right=("weights", "state", "devices", "fullest\ndevice", "step", "beside\nas given"),
        optional=("fullest\ndevice",),
    )  # fmt: skip
    for each in forms:
        table.add_row(
            each.name, format_size(each.weight_bytes), format_size(each.state_bytes), f"{each.devices:,}",
            format_size(each.fullest_bytes), format_time(each.step_s), f"{each.step_s / forms[0].step_s - 1:+z.1%}",
        )  # fmt: skip
    return Group(*lines, table, *(line("note", each.note) for each in forms if each.note))


def data_types_to_raw(forms: Sequence[DataTypeForm]) -> Raw:
    """Forms of storing the tables as plain data."""
    named = ("name", "weight_bytes", "state_bytes", "devices", "fullest_bytes", "step_s", "note")
    return {"schema": DATA_TYPES_SCHEMA, "forms": [{name: getattr(each, name) for name in named} for each in forms]}
