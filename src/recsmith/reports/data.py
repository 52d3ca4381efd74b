"""Datasets in figures: as tables for people, and as plain data."""

from rich.console import Group, RenderableType

from recsmith.data import DataCheck, DataFigures, FeatureFigures, Optimum
from recsmith.files import Raw, encode
from recsmith.reports.layout import add_first, grid, line
from recsmith.units import counted

INSPECTION_SCHEMA = "recsmith/inspection/1"
CHECK_SCHEMA = "recsmith/data-check/1"
HEADINGS = ("rows", "ids a bag", "empty", "distinct", "largest id", "hottest", "repeated")
MOST_FEATURES = 40  # rows of the table
LARGE_BLOCK = 2**17  # samples of a block: two blocks are more than a window of shuffling needs
ALL_DENSE = 13  # dense columns whose means are shown


def figures_report(figures: DataFigures, optimum: Optimum | None) -> RenderableType:
    """What a dataset holds: its samples, labels and dense columns, and a row for each feature."""
    made = grid(left=("feature",), right=HEADINGS)
    add_first(made, [_row(each) for each in figures.features], MOST_FEATURES)
    corrupt = f", {figures.corrupt:,} corrupt ones passed over" if figures.corrupt else ""
    dense = ", ".join(f"{name} {mean:.3g}" for name, mean in list(figures.dense.items())[:ALL_DENSE])
    more = " ..." if len(figures.dense) > ALL_DENSE else ""
    parts: list[RenderableType] = [
        line("samples", f"{figures.num_samples:,}; counted in the first {figures.counted:,}{corrupt}"),
        line("labels", ", ".join(f"{name} {mean:.4f}" for name, mean in figures.labels.items()) + " on average"),
        line("dense", f"{dense}{more} on average" if dense else "no columns"),
        made,
    ]
    if optimum is not None:
        parts.append(line("best", _optimum_words(optimum)))
    return Group(*parts)


def _optimum_words(optimum: Optimum) -> str:
    return (
        f"no model exceeds AUC {optimum.auc:.4f} or log loss {optimum.log_loss:.4f} (normalized entropy "
        f"{optimum.normalized_entropy:.4f}) on {counted(optimum.samples, 'sample')}, whose truth is planted"
    )


def _row(feature: FeatureFigures) -> tuple[str, ...]:
    return (
        feature.name,
        "-" if feature.num_embeddings is None else f"{feature.num_embeddings:,}",
        f"{feature.mean_ids:.4g}",
        f"{feature.empty:.1%}",
        f"{feature.distinct:,}",
        f"{feature.largest:,}",
        f"{feature.hottest:.2%}",
        f"{feature.repeated:.1%}",
    )


def figures_to_raw(figures: DataFigures, optimum: Optimum | None) -> Raw:
    """Figures as plain data."""
    best = {} if optimum is None else {"optimum": encode(optimum)}
    return {"schema": INSPECTION_SCHEMA, **encode(figures), **best}


def check_report(check: DataCheck) -> RenderableType:
    """What reading a dataset from end to end found."""
    corrupt = f"{check.corrupt:,}; training passes over {check.allowed:,} of them a rank"
    parts = [
        line("samples", f"{check.samples:,}, all of them read"),
        line("corrupt", corrupt if check.corrupt else "none"),
        *(line("", each) for each in check.examples),
        line("blocks", f"{check.blocks:,}; the largest has {counted(check.largest_block, 'sample')}"),
    ]
    if check.largest_block > LARGE_BLOCK:
        parts.append(
            line("note", f"a rank keeps two blocks or more; above {LARGE_BLOCK:,} samples, write smaller row groups")
        )
    return Group(*parts)


def check_to_raw(check: DataCheck) -> Raw:
    """A check as plain data."""
    return {"schema": CHECK_SCHEMA, **encode(check)}
