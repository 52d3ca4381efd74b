"""How a watched run does, and alarms of series: for people, and as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from recsmith.files import Raw, encode
from recsmith.reports.layout import grid, line
from recsmith.streaming.csv_series import NamedSeries
from recsmith.streaming.series import Alarm
from recsmith.streaming.sketches import IdSketch
from recsmith.training.results.watched import WatchedRun
from recsmith.units import counted

SCHEMA = "recsmith/watch/1"
TOP = 20  # ids of a feature whose share of lookups is shown
SHOWN = 20  # alarms, the newest; the log has all
Sketches = Mapping[str, IdSketch]
Found = Sequence[tuple[NamedSeries, tuple[Alarm, ...] | str]]


def run_report(run: WatchedRun) -> RenderableType:
    """What alarmed, since when, what was done, and the newest signals."""
    state = "ended" if run.ended else "under way, or was stopped"
    how = "watched as it trains" if run.watched else "not watched; detectors judge the lines of its log"
    parts: list[RenderableType] = [line("run", f"{run.folder}: step {run.step:,}, {state}; {how}")]
    values = [f"{name} {value:.4g}" for name, value in run.signals.items() if not name.startswith("hot_set/")]
    hot = [value for name, value in run.signals.items() if name.startswith("hot_set/")]
    if hot:
        values.append(f"lookups of hot sets {min(hot):.0%} to {max(hot):.0%}")
    parts.append(line("now", ", ".join(values) or "nothing was logged yet"))
    if run.slow is not None:
        parts.append(line("ranks", run.slow))
    if not run.alarms:
        return Group(*parts, line("alarms", "none"))
    made = grid(left=("kind", "what is known", "what was done"), right=("told at", "since"))
    for alarm in run.alarms[-SHOWN:]:
        made.add_row(alarm.kind, alarm.because, alarm.done or "told", f"{alarm.step:,}", f"{alarm.since:,}")
    more = f"; the newest {SHOWN}" if len(run.alarms) > SHOWN else ""
    return Group(*parts, line("alarms", f"{len(run.alarms)}{more}"), made)


def run_raw(run: WatchedRun) -> Raw:
    """The same as plain data."""
    return {"schema": SCHEMA, **encode(run)}


def _ids(now: Sketches, before: Sketches) -> list[dict[str, Any]]:
    """What the ids of each feature look like; new: of the ids that are read, against those of the time before."""
    return [
        {
            "feature": name, "lookups": each.lookups, "sketched": each.sketched, "different": round(each.distinct),
            "new_share": each.new_share(before[name]) if name in before else None,
            "top_share": sum(share for _, share in each.frequent(TOP)),
            "top": each.frequent(1)[0][0] if each.sketched else None,
            "lengths": [each.length(rank) for rank in (0.5, 0.99)],
        }
        for name, each in now.items()
    ]  # fmt: skip


def ids_report(folder: str, step: int, now: Sketches, before: Sketches) -> RenderableType:
    """The ids of each feature in the steps up to one, by sketches of some of them."""
    made = grid(
        left=("feature",),
        right=("lookups", "sketched", "different", "new", f"{TOP} most read", "the most", "median bag", "99th %"),
    )
    for each in _ids(now, before):
        new = "" if each["new_share"] is None else f"{each['new_share']:.1%}"
        made.add_row(each["feature"], f"{each['lookups']:,}", f"{each['sketched']:,}", f"{each['different']:,}", new,
                     f"{each['top_share']:.1%}", str(each["top"]), *map(str, each["lengths"]))  # fmt: skip
    return Group(line("ids", f"{folder}: the steps up to {step:,}"), made)


def ids_raw(step: int, now: Sketches, before: Sketches) -> Raw:
    """The same as plain data."""
    return {"schema": SCHEMA, "step": step, "ids": _ids(now, before)}


def series_report(found: Found) -> RenderableType:
    """The alarms of each series."""
    parts: list[RenderableType] = []
    for series, alarms in found:
        missing = f", {series.missing:,} empty cells left out" if series.missing else ""
        count = f"{counted(len(series.values), 'value')}{missing}"
        if isinstance(alarms, str):
            parts.append(line(series.name, f"{count}: {alarms}"))
            continue
        parts.append(line(series.name, f"{count}: {counted(len(alarms), 'alarm')}"))
        made = grid(left=("at",), right=("value", "score"))
        for alarm in alarms:
            made.add_row(series.labels[alarm.at], f"{alarm.value:.6g}", f"{alarm.score:.3g}")
        if alarms:
            parts.append(made)
    return Group(*parts)


def series_raw(found: Found) -> Raw:
    """The same as plain data."""
    return {
        "schema": SCHEMA,
        "series": [
            {
                "name": series.name, "values": len(series.values), "missing": series.missing,
                "note": alarms if isinstance(alarms, str) else None,
                "alarms": [] if isinstance(alarms, str) else [
                    {"at": series.labels[each.at], "value": each.value, "score": each.score} for each in alarms
                ],
            }
            for series, alarms in found
        ],
    }  # fmt: skip
