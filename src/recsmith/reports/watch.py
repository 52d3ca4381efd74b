"""The state of a watched run, and alarms in series: for people, and as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from recsmith.files import Raw, encode
from recsmith.reports.layout import grid, line
from recsmith.streaming.alarm_shapes import AlarmShape, shape_of
from recsmith.streaming.csv_series import UNJUDGED, NamedSeries, SeriesFile
from recsmith.streaming.series import Alarm
from recsmith.streaming.sketches import IdSketch
from recsmith.training.results.watched import WatchedRun
from recsmith.units import counted

SCHEMA = "recsmith/watch/1"
TOP = 20  # most frequent ids of a feature, whose share of lookups is shown
SHOWN = 20  # newest alarms that are shown; the log has all
Sketches = Mapping[str, IdSketch]
Found = Sequence[tuple[NamedSeries, tuple[Alarm, ...] | str]]


def run_report(run: WatchedRun) -> RenderableType:
    """The alarms of a run, since when, what was done, and the newest signals."""
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
    made = grid(left=("kind", "what is known", "what was done"), right=("reported at", "since"))
    for alarm in run.alarms[-SHOWN:]:
        made.add_row(alarm.kind, alarm.because, alarm.done or "reported", f"{alarm.step:,}", f"{alarm.since:,}")
    more = f"; the newest {SHOWN}" if len(run.alarms) > SHOWN else ""
    return Group(*parts, line("alarms", f"{len(run.alarms)}{more}"), made)


def run_raw(run: WatchedRun) -> Raw:
    """The state of a watched run as plain data."""
    return {"schema": SCHEMA, **encode(run)}


def _ids(now: Sketches, before: Sketches) -> list[dict[str, Any]]:
    """Statistics of each feature's ids. `new_share`: distinct ids per lookup that are not in the sketches before."""
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
    """The ids of each feature up to a step, from sketches of some of the lookups."""
    made = grid(
        left=("feature",),
        right=("lookups", "sketched", "different", "new", f"{TOP} most read", "the most", "median bag", "99th %"),
    )
    for each in _ids(now, before):
        new = "" if each["new_share"] is None else f"{each['new_share']:.1%}"
        made.add_row(each["feature"], f"{each['lookups']:,}", f"{each['sketched']:,}", f"{each['different']:,}", new,
                     f"{each['top_share']:.1%}", str(each["top"]), *map(str, each["lengths"]))  # fmt: skip
    looked, of_all = (sum(getattr(each, name) for each in now.values()) for name in ("lookups", "of_lookups"))
    part = f"; one lookup in {of_all / looked:.3g} was looked at" if of_all > looked else ""
    return Group(line("ids", f"{folder}: the steps up to {step:,}{part}"), made)


def ids_raw(step: int, now: Sketches, before: Sketches) -> Raw:
    """Statistics of each feature's ids as plain data."""
    return {"schema": SCHEMA, "step": step, "ids": _ids(now, before)}


def series_report(file: SeriesFile, found: Found, learned: str) -> RenderableType:
    """The alarms in each series of a file. learned: a sentence on the detector."""
    where = "lines of the file tell" if file.place is None else f"column '{file.place}' tells"
    parts: list[RenderableType] = [
        line("file", f"{file.source}: {counted(file.rows, 'row')}; {where} where they are"), line("judged", learned)
    ]  # fmt: skip
    if file.left_out:
        out = "; ".join(f"'{name}' {why}" for name, why in file.left_out.items())
        able = [why for why in file.left_out.values() if not why.startswith(UNJUDGED)]
        parts.append(line("left out", out + ("; --column NAME judges one all the same" if able else "")))
    if file.disorder is not None:
        parts.append(line("order", file.disorder))
    if file.mixed is not None:
        parts.append(line("rows", file.mixed))
    made = grid(
        left=("series", "line" if file.place is None else file.place, "what it looks like"),
        right=("value", "usual", "score"),
    )
    for series, alarms in found:
        shown = alarms if isinstance(alarms, str) else counted(len(alarms), "alarm") if alarms else "no alarm"
        parts.append(
            line("series", f"{series.name}: {counted(len(series.values), 'value')}{_without(series)}, {shown}")
        )
        for alarm in () if isinstance(alarms, str) else alarms:
            shape = shape_of(series.values, alarm.at, alarm.season)
            made.add_row(series.name, series.labels[alarm.at], shape_text(shape, series, alarm),
                         f"{alarm.value:.6g}", f"{shape.usual + shape.season:.6g}", f"{alarm.score:.1f}")  # fmt: skip
    return Group(*parts, made) if made.row_count else Group(*parts)


def _without(series: NamedSeries) -> str:
    """How many cells without a value were left out, and where the first one is."""
    if not series.missing:
        return ""
    first = series.first_missing
    named = "" if first is None else f", the first {first[1]!r:.40} in line {first[0]:,}"
    return f" ({counted(series.missing, 'cell')} without a value left out{named})"


def shape_text(shape: AlarmShape, series: NamedSeries, alarm: Alarm) -> str:
    """The shape of an alarm in words."""
    value = alarm.value - shape.season
    off, way = abs(value - shape.usual), "up" if value > shape.usual else "down"
    far = f", {off / shape.deviation:.1f} deviations" if shape.deviation else ""
    since, about = ("" if shape.since == alarm.at else f" {when} {series.labels[shape.since]}"
                    for when in ("since", "since about"))  # fmt: skip
    less = "less its season: " if alarm.season and shape.kind != "frozen" else ""
    said = {
        "spike": f"a spike {way} by {off:.4g}{far}",
        "late": f"{way} by {off:.4g}{far}, among the newest values: too early to say whether it stays",
        "level": f"the level moved from {shape.usual:.4g} to {shape.now:.4g}{about}",
        "frozen": f"stands still: the same value {shape.now:,.0f} times{since}",
        "spread": f"values vary by {shape.now:.3g}, and by {shape.deviation:.3g} before",
        "together": "level, steps and spread together are unlike those before",
    }[shape.kind]
    return less + said


def series_raw(file: SeriesFile, found: Found) -> Raw:
    """The series of a file and their alarms as plain data."""
    return {
        "schema": SCHEMA, "place": file.place, "left_out": dict(file.left_out), "disorder": file.disorder,
        "mixed": file.mixed,
        "series": [
            {
                "name": series.name, "values": len(series.values), "missing": series.missing,
                "note": alarms if isinstance(alarms, str) else None,
                "alarms": [] if isinstance(alarms, str) else [_alarm_raw(series, each) for each in alarms],
            }
            for series, alarms in found
        ],
    }  # fmt: skip


def _alarm_raw(series: NamedSeries, alarm: Alarm) -> Raw:
    shape = shape_of(series.values, alarm.at, alarm.season)
    return {
        "at": series.labels[alarm.at], "value": alarm.value, "score": alarm.score, "kind": shape.kind,
        "since": series.labels[shape.since], "usual": shape.usual + shape.season,
        "because": shape_text(shape, series, alarm),
    }  # fmt: skip
