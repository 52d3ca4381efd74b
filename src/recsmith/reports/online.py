"""Ways to train on a stream, compared by a replay: its arms as lines, as plain data, and as a plot."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from recsmith.files import Raw, check_schema, decode, encode
from recsmith.reports.compressions import COLOURS
from recsmith.reports.layout import plus_minus

if TYPE_CHECKING:
    from recsmith.training.results.arms import OnlineResult

ONLINE_SCHEMA = "recsmith/bench-online-result/1"
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 480, 300, 60, 20, 40, 40
TICKS = 5
Curve = Mapping[float, float]


def online_lines(result: "OnlineResult") -> list[str]:
    """A line for each arm: NE of the next period, loss against the best arm, its cost, and NE of later periods."""
    aheads = list(dict.fromkeys(ahead for row in result.rows for ahead in row.late))
    later = [f"NE {ahead} ahead" for ahead in aheads if ahead != "1"]
    head = ["", "NE of the next", "log loss", "above the best", "cost", *later]
    rows = [
        [
            row.name, plus_minus(row.ne, row.ne_within, ".4f"), f"{row.logloss:.5f}",
            plus_minus(row.worse, row.worse_within, "+.5f"), f"{row.cost:.2f}",
            *(f"{row.late[ahead]:.4f}" if ahead in row.late else "" for ahead in aheads if ahead != "1"),
        ]
        for row in result.rows
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return [*(line.rstrip() for line in lines), "", f"pays: {result.chosen}", f"      {result.because}"]


def online_to_raw(result: "OnlineResult") -> Raw:
    """The result of a replay as plain data."""
    return {"schema": ONLINE_SCHEMA, **encode(result)}


def online_from_raw(raw: Raw, source: str) -> "OnlineResult":
    """The result of a replay, from its plain data. source: the file, for errors.

    Raises:
        CorruptFile: the data is not such a result, or its parts name different arms.
    """
    from recsmith.training.results.arms import OnlineResult

    return decode(OnlineResult, check_schema(raw, ONLINE_SCHEMA, source), source)


def online_picture(result: "OnlineResult") -> str:
    """An SVG with two panels: NE of each period by the model before it, and NE by how late a model scores."""
    names = [row.name for row in result.rows]
    by_period: dict[str, Curve] = {name: next_by_period(result, name) for name in names}
    late: dict[str, Curve] = {row.name: {float(a): ne for a, ne in row.late.items()} for row in result.rows}
    panels = [
        *_panel(by_period, 0, "NE of each period by the model before it", "period"),
        *_panel(late, WIDE, "NE by how late a model scores", "periods after the newest trained one"),
    ]
    for number, name in enumerate(names):
        panels.append(_text(LEFT + 140 * number, HIGH + 20, name, "start", COLOURS[number % len(COLOURS)]))
    size = f'viewBox="0 0 {2 * WIDE} {HIGH + 34}" font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f'<rect width="{2 * WIDE}" height="{HIGH + 34}" fill="#fff"/>', *panels, "</svg>"]) + "\n"


def next_by_period(result: "OnlineResult", name: str) -> Curve:
    """An arm's NE in each period, by the model trained up to the period before; mean over seeds."""
    found: dict[float, list[float]] = {}
    for replay in result.replays:
        for loss in replay.losses if replay.arm == name else ():
            if loss.ahead == 1 and loss.period and loss.ne is not None:
                found.setdefault(loss.period, []).append(loss.ne)
    return {period: fmean(nes) for period, nes in sorted(found.items())}


def _panel(curves: Mapping[str, Curve], left: float, title: str, across: str) -> list[str]:
    values = [ne for curve in curves.values() for ne in curve.values()]
    if not values:
        return [_text(left + LEFT, 20, f"{title}: too few periods", "start")]
    places = [place for curve in curves.values() for place in curve]
    low, high, first, last = min(values), max(values), min(places), max(places)

    def x(place: float) -> float:
        return left + LEFT + (WIDE - LEFT - RIGHT) * (place - first) / max(last - first, 1e-9)

    def y(ne: float) -> float:
        return TOP + (HIGH - TOP - BOTTOM) * (high - ne) / max(high - low, 1e-9)

    axes = f"M{left + LEFT} {TOP}V{HIGH - BOTTOM}H{left + WIDE - RIGHT}"
    parts = [f'<path d="{axes}" fill="none" stroke="#888"/>', _text(left + LEFT, 20, title, "start")]
    parts.append(_text(left + (LEFT + WIDE - RIGHT) / 2, HIGH - 6, across, "middle"))
    for tick in range(TICKS):
        ne, place = low + (high - low) * tick / (TICKS - 1), first + (last - first) * tick / (TICKS - 1)
        parts.append(_text(left + LEFT - 6, y(ne) + 4, f"{ne:.3f}", "end"))
        parts.append(_text(x(place), HIGH - BOTTOM + 16, f"{place:.3g}", "middle"))
    for number, curve in enumerate(curves.values()):
        parts += _curve([(x(place), y(ne)) for place, ne in curve.items()], COLOURS[number % len(COLOURS)])
    return parts


def _curve(places: Sequence[tuple[float, float]], colour: str) -> list[str]:
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _text(x: float, y: float, shown: str, anchor: str, colour: str = "#000") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{shown}</text>'
