"""Datasets in figures: as tables for people, and as plain data."""

from rich.console import Group, RenderableType

from recsmith.data import DataCheck, DataFigures, FeatureFigures, Optimum, SessionFigures
from recsmith.data.checking import Fault
from recsmith.data.parquet.arrow import StoredFigures
from recsmith.files import Raw, encode
from recsmith.reports.layout import add_first, grid, line
from recsmith.units import counted, format_size

INSPECTION_SCHEMA = "recsmith/inspection/1"
CHECK_SCHEMA = "recsmith/data-check/1"
HEADINGS = ("rows", "ids a bag", "empty", "distinct", "reuse", "largest id", "hottest", "repeated", "a distinct bag")
MOST_FEATURES = 40  # rows of the table
LARGE_BLOCK = 2**17  # samples of a block: two blocks are more than a window of shuffling needs
ALL_DENSE = 13  # dense columns whose means are shown


def figures_report(figures: DataFigures, optimum: Optimum | None) -> RenderableType:
    """What a dataset holds: its samples, labels and dense columns, and a row for each feature."""
    has_bytes = any(each.stored is not None for each in figures.features)
    made = grid(left=("feature",), right=(*HEADINGS, *(("bytes",) if has_bytes else ())))
    add_first(made, [_row(each, has_bytes) for each in figures.features], MOST_FEATURES)
    corrupt = f", {figures.corrupt:,} corrupt ones passed over" if figures.corrupt else ""
    dense = ", ".join(f"{name} {mean:.3g}" for name, mean in list(figures.dense.items())[:ALL_DENSE])
    more = " ..." if len(figures.dense) > ALL_DENSE else ""
    parts: list[RenderableType] = [
        line("samples", f"{figures.num_samples:,}; counted in the first {figures.counted:,}{corrupt}"),
        line("labels", ", ".join(f"{name} {mean:.4f}" for name, mean in figures.labels.items()) + " on average"),
        line("dense", f"{dense}{more} on average" if dense else "no columns"),
        *([] if figures.sessions is None else [line("sessions", _session_words(figures.sessions))]),
        *([] if figures.stored is None else [line("stored", _stored_words(figures.stored))]),
        made,
        line("", f"a distinct bag: samples for each distinct bag in a batch of {figures.batch_size:,}"),
    ]
    if optimum is not None:
        parts.append(line("best", _optimum_words(optimum)))
    return Group(*parts)


def _optimum_words(optimum: Optimum) -> str:
    return (
        f"no model exceeds AUC {optimum.auc:.4f} or log loss {optimum.log_loss:.4f} (normalized entropy "
        f"{optimum.normalized_entropy:.4f}) on {counted(optimum.samples, 'sample')}, whose truth is planted"
    )


def _session_words(sessions: SessionFigures) -> str:
    return (
        f"{sessions.sessions:,} in the samples counted, of {sessions.samples:.1f} each, {sessions.side_by_side:.1f} of "
        "them side by side"
    )


def _stored_words(stored: StoredFigures) -> str:
    groups = f"{counted(stored.row_groups, 'row group')} of {stored.smallest_group:,} to {stored.largest_group:,} rows"
    return f"{format_size(stored.bytes)} in {counted(stored.files, 'file')}, {groups}"


def _row(feature: FeatureFigures, has_bytes: bool) -> tuple[str, ...]:
    return (
        feature.name,
        "-" if feature.num_embeddings is None else f"{feature.num_embeddings:,}",
        f"{feature.mean_ids:.4g}",
        f"{feature.empty:.1%}",
        f"{feature.distinct:,}",
        f"{feature.reuse:.1f}",
        f"{feature.largest:,}",
        f"{feature.hottest:.2%}",
        f"{feature.repeated:.1%}",
        f"{feature.duplicates:.2f}",
        *((("-" if feature.stored is None else format_size(feature.stored)),) if has_bytes else ()),
    )


def figures_to_raw(figures: DataFigures, optimum: Optimum | None) -> Raw:
    """Figures as plain data."""
    best = {} if optimum is None else {"optimum": encode(optimum)}
    return {"schema": INSPECTION_SCHEMA, **encode(figures), **best}


def check_report(check: DataCheck) -> RenderableType:
    """What reading a dataset from end to end found."""
    corrupt = f"{check.corrupt:,}; training passes over {check.allowed:,} of them a rank"
    broken = any(each.breaks for each in check.faults)
    parts = [
        line("samples", f"{check.samples:,}, all of them read" + (" that could be" if broken else "")),
        line("corrupt", corrupt if check.corrupt else "none"),
        *(line("", each) for each in check.examples),
        *(line("file", _fault_words(each)) for each in check.faults),
        line("blocks", f"{check.blocks:,}; the largest has {counted(check.largest_block, 'sample')}"),
    ]
    if check.largest_block > LARGE_BLOCK:
        parts.append(
            line("note", f"a rank keeps two blocks or more; above {LARGE_BLOCK:,} samples, write smaller row groups")
        )
    return Group(*parts)


def _fault_words(fault: Fault) -> str:
    number = f" ({fault.count:,})" if fault.count > 1 else ""
    return f"'{fault.file}' {fault.fault}{number}"


def check_to_raw(check: DataCheck) -> Raw:
    """A check as plain data."""
    return {"schema": CHECK_SCHEMA, **encode(check)}
