"""Compressed tables: what is proposed, and the curve of AUC over bytes, as lines and as a plot."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recsmith.embeddings import CompressionRule
from recsmith.embeddings.compression import shown_fields
from recsmith.embeddings.workloads import Compressed
from recsmith.planning import Result
from recsmith.units import format_size, format_time
from recsmith.workloads import Workload

if TYPE_CHECKING:
    from recsmith.training.results.points import CompressionPoint

SHOWN = ("method", "tables", "above_rows", "factor", "temperature", "operation")  # fields of a rule, for a run file
WIDE, HIGH = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 20, 50  # distances of the axes from the edges of the plot, in pixels
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#b8860b", "#7b4fa3", "#444")
TICKS = 5


def compression_lines(before: Workload, made: Compressed) -> list[str]:
    """Tables, parameters and bytes before and after compression, and the rules for a run file."""
    after = made.workload
    return [
        f"tables    {len(made.stored)} of {len(before.tables)} stored otherwise, {len(after.tables)} physical ones",
        f"numbers   {made.parameters_before:,} -> {made.parameters_after:,}, {made.factor:.2f} times fewer"
        + (f" ({made.dense:,} of them in projections)" if made.dense else ""),
        f"weights   {format_size(before.weight_bytes)} -> {format_size(after.weight_bytes)}",
        f"in a run  model: {{compression: [{', '.join(map(_rule, made.rules))}]}}",
    ]


def planned_lines(results: Sequence[Result]) -> list[str]:
    """Step, bound and memory with the tables as they are, and compressed."""
    lines = [f"{'':10}{'step':>12}{'bound':>12}{'most memory':>14}{'of all devices':>16}"]
    for name, result in zip(("as is", "smaller"), results, strict=True):
        cost, bound = result.plan.cost, result.plan.bound.of_step(result.plan.cost)
        memory = [device.hbm_bytes for device in cost.per_device]
        lines.append(
            f"{name:10}{format_time(cost.step_s):>12}{'none' if bound is None else format_time(bound):>12}"
            f"{format_size(max(memory)):>14}{format_size(sum(memory)):>16}"
        )
    return lines


def _rule(rule: CompressionRule) -> str:
    kept = shown_fields(rule, SHOWN)
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in kept.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f'"{value}"' if value == "*" else str(value)


def curve_lines(points: Sequence["CompressionPoint"]) -> list[str]:
    """A line for each method and factor: bytes of weights and of maps, AUC and its 95 % interval over seeds."""
    width = max(len(point.method) for point in points)
    head = f"{'':{width}} {'factor':>8} {'weights':>12} {'maps':>12}  AUC"
    return [
        head,
        *(
            f"{point.method:{width}} {f'{point.factor:g}x':>8} {format_size(point.weight_bytes):>12} "
            f"{format_size(point.map_bytes):>12}  {point.auc:.4f}{_within(point)}"
            for point in points
        ),
    ]


def _within(point: "CompressionPoint") -> str:
    if point.auc_within is None:
        return " (one seed)"
    return f" ± {point.auc_within:.4f} ({point.seeds} seeds)"


def curve_picture(
    points: Sequence["CompressionPoint"], across: str = "bytes of tables and maps",
    shown: Callable[[int], str] = format_size,
) -> str:  # fmt: skip
    """An SVG of AUC (y) over bytes (x, logarithmic), with a line per method and a bar for each interval.

    across: the label of the x axis. shown: formats a value on it.
    """
    least, most = min(point.bytes for point in points) / 1.2, max(point.bytes for point in points) * 1.2
    low = min(point.auc - (point.auc_within or 0.0) for point in points)
    high = max(point.auc + (point.auc_within or 0.0) for point in points)
    low, high = low - 0.05 * (high - low) - 1e-6, high + 0.05 * (high - low) + 1e-6

    def x(size: float) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * math.log(size / least) / math.log(most / least)

    def y(auc: float) -> float:
        return TOP + (HIGH - TOP - BOTTOM) * (high - auc) / (high - low)

    parts = [f'<path d="M{LEFT} {TOP}V{HIGH - BOTTOM}H{WIDE - RIGHT}" fill="none" stroke="#888"/>']
    for i in range(TICKS):
        auc, size = low + (high - low) * i / (TICKS - 1), least * (most / least) ** (i / (TICKS - 1))
        parts.append(_text(LEFT - 6, y(auc) + 4, f"{auc:.4f}", "end"))
        parts.append(_text(x(size), HIGH - BOTTOM + 18, shown(int(size)), "middle"))
    parts.append(_text((LEFT + WIDE - RIGHT) / 2, HIGH - 12, across, "middle"))
    for number, method in enumerate(dict.fromkeys(point.method for point in points)):
        mine = sorted((point for point in points if point.method == method), key=lambda point: point.bytes)
        places = [(x(p.bytes), y(p.auc), y(p.auc - (p.auc_within or 0)), y(p.auc + (p.auc_within or 0))) for p in mine]
        parts += _line(places, COLOURS[number % len(COLOURS)])
        parts.append(_text(WIDE - RIGHT + 14, TOP + 12 + 18 * number, method, "start", COLOURS[number % len(COLOURS)]))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{WIDE}" height="{HIGH}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _line(places: Sequence[tuple[float, float, float, float]], colour: str) -> list[str]:
    """A line through points, with a dot and the interval of each."""
    through = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
    bars = "".join(f"M{x:.1f} {bottom:.1f}V{top:.1f}" for x, _, bottom, top in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y, _, _ in places]
    return [
        f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<path d="{bars}" stroke="{colour}" stroke-opacity=".5"/>',
        *dots,
    ]


def _text(x: float, y: float, shown: str, anchor: str, colour: str = "#000") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{shown}</text>'
