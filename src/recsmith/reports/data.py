"""Statistics of datasets, and the state of a run's feed: as tables for people, and as plain data."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from recsmith.data import DataCheck, DataFigures, FeatureFigures, Optimum, SessionFigures
from recsmith.data.checking import Fault
from recsmith.data.parquet.arrow import StoredFigures
from recsmith.data.vocabularies.writing import VocabularyFigures
from recsmith.feeding.status import FeedStatus
from recsmith.files import Raw, encode
from recsmith.reports.layout import add_first, grid, line
from recsmith.units import counted, format_size

INSPECTION_SCHEMA = "recsmith/inspection/1"
CHECK_SCHEMA = "recsmith/data-check/1"
VOCABULARIES_SCHEMA = "recsmith/vocabularies/1"
HEADINGS = ("rows", "ids a bag", "empty", "distinct", "reuse", "largest id", "hottest", "repeated", "a distinct bag")
OPTIONAL = ("hottest", "largest id", "repeated", "a distinct bag", "empty", "bytes", "reuse")  # omitted when narrow
MOST_FEATURES = 40  # rows of the table
LARGE_BLOCK = 2**17  # samples of a block: two larger blocks are more than shuffling needs in memory
ALL_DENSE = 13  # dense columns whose means are shown
FEED_SCHEMA = "recsmith/feed/1"


def figures_report(figures: DataFigures, optimum: Optimum | None) -> RenderableType:
    """Samples, labels and dense columns of a dataset, and a row for each feature."""
    has_bytes = any(each.stored is not None for each in figures.features)
    made = grid(left=("feature",), right=(*HEADINGS, *(("bytes",) if has_bytes else ())), optional=OPTIONAL)
    add_first(made, [_feature_row(each, has_bytes) for each in figures.features], MOST_FEATURES)
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


def _feature_row(feature: FeatureFigures, has_bytes: bool) -> tuple[str, ...]:
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
    """Statistics of a dataset as plain data."""
    best = {} if optimum is None else {"optimum": encode(optimum)}
    return {"schema": INSPECTION_SCHEMA, **encode(figures), **best}


def check_report(check: DataCheck) -> RenderableType:
    """What a reading of the whole dataset found."""
    corrupt = f"{check.corrupt:,}; training passes over {check.allowed:,} of them a rank"
    broken = any(each.breaks for each in check.faults)
    parts = [
        line("samples", f"{check.samples:,}, all of them read" + (" that could be" if broken else "")),
        line("corrupt", corrupt if check.corrupt else "none"),
        *(line("", each) for each in check.examples),
        *(line("file", each) for each in _fault_lines(check.faults)),
        line("blocks", f"{check.blocks:,}; the largest has {counted(check.largest_block, 'sample')}"),
    ]
    if check.largest_block > LARGE_BLOCK:
        parts.append(
            line("note", f"a rank keeps two blocks or more; above {LARGE_BLOCK:,} samples, write smaller row groups")
        )
    return Group(*parts)


def _fault_lines(faults: Sequence[Fault]) -> list[str]:
    """A line for each fault; files with the same fault share one, which names the first of them."""
    files: dict[tuple[str, bool], list[Fault]] = {}
    for each in faults:
        files.setdefault((each.fault, each.breaks), []).append(each)
    lines: list[str] = []
    for same in files.values():
        count = sum(each.count for each in same)
        number = f" ({count:,})" if count > len(same) else ""
        more = f", and so of {counted(len(same) - 1, 'other file')}" if len(same) > 1 else ""
        lines.append(f"'{same[0].file}' {same[0].fault}{more}{number}")
    return lines


def check_to_raw(check: DataCheck) -> Raw:
    """The result of a check as plain data."""
    return {"schema": CHECK_SCHEMA, **encode(check)}


def vocabularies_report(made: Sequence[VocabularyFigures]) -> RenderableType:
    """A row for each vocabulary that was written."""
    table = grid(left=("vocabulary",), right=("rows", "distinct", "counted", "with a row"))
    for each in made:
        table.add_row(each.file, f"{each.values:,}", f"{each.distinct:,}", f"{each.counted:,}", f"{each.share:.2%}")
    return Group(table, line("", "rows: values with a row of their own; all others share those that `unknown` says"))


def vocabularies_to_raw(made: Sequence[VocabularyFigures]) -> Raw:
    """The vocabularies' figures as plain data."""
    return {"schema": VOCABULARIES_SCHEMA, "vocabularies": [encode(each) for each in made]}


def feed_report(folder: str, statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    """The state of the whole feed, with a row for each rank, and a row for each worker."""
    newest = max(statuses, key=lambda status: status.written)
    share = newest.used / newest.num_samples if newest.num_samples else 1.0
    return Group(
        line(
            "run", f"{folder}: {newest.used:,} of {newest.num_samples:,} samples of epoch {newest.epoch} ({share:.1%})"
        ),
        line("feed", _feed_words(statuses, now)),
        _ranks(statuses, now),
        _workers(statuses, now),
    )


def feed_to_raw(statuses: Sequence[FeedStatus], now: float) -> Raw:
    """The state of a feed as plain data; `age_s` of each rank: seconds since it wrote its status."""
    live = _live(statuses, now)
    return {
        "schema": FEED_SCHEMA,
        "samples_per_s": sum(each.samples_per_s for each in live),
        "waiting": max((each.waiting for each in live), default=0.0),
        "ranks": [
            {**encode(each), "age_s": each.age_s(now), "silent": each.is_silent(now)} for each in statuses
        ],
    }  # fmt: skip


def _live(statuses: Sequence[FeedStatus], now: float) -> list[FeedStatus]:
    return [each for each in statuses if not each.ended and not each.is_silent(now)]


def _feed_words(statuses: Sequence[FeedStatus], now: float) -> str:
    lost, live = sum(each.lost for each in statuses), _live(statuses, now)
    replaced = f"; {lost:,} workers lost and replaced" if lost else ""
    if not live:
        return f"{'ended' if all(each.ended for each in statuses) else 'no rank tells any more'}{replaced}"
    rate, waiting = sum(each.samples_per_s for each in live), max(each.waiting for each in live)
    return f"{rate:,.0f} samples/s; the rank that waits most waits {waiting:.1%} of its time for data{replaced}"


def _ranks(statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    made = grid(
        left=("rank", "engine", "process", "state"),
        right=("samples/s", "waiting", "waited", "ready", "windows", "workers", "lost"),
        optional=("process", "windows", "ready", "waited"),
    )
    for each in statuses:
        made.add_row(
            str(each.rank), each.engine, each.process, _state(each, now), f"{each.samples_per_s:,.0f}",
            f"{each.waiting:.1%}", f"{each.waited_s:.1f} s", f"{each.ahead:,}", f"{each.windows:,}",
            str(len(each.workers)), str(each.lost),
        )  # fmt: skip
    return made


def _state(status: FeedStatus, now: float) -> str:
    if status.ended:
        return "ended"
    return f"silent for {status.age_s(now):.0f} s" if status.is_silent(now) else "feeding"


def _workers(statuses: Sequence[FeedStatus], now: float) -> RenderableType:
    made = grid(left=("rank", "worker", "place", "does"), right=("windows", "lag"), optional=("windows",))
    for each in _live(statuses, now):
        for worker in each.workers:
            does = "waits: enough is ready" if worker.window is None else f"window {worker.window}"
            made.add_row(
                str(each.rank), str(worker.number), worker.place or "starting", does, f"{worker.windows:,}",
                f"{worker.lag_s:.1f} s",
            )  # fmt: skip
    return made
