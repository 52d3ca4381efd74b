"""The pictures of docs/how-it-works.md and docs/architecture.md, from plans made here: docs/pictures/how-*.svg.

    python benchmarks/how_it_works_pictures.py     # about half a minute

types: one table under the seven sharding types. step: the seconds of every device, of DLRM-v2 on eight H100. search:
plans that get cheaper and bounds that rise, of 20 sampled tables on four H100. learned: how a learned cost model is put
together. rooms: the folders of the package in groups.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import recsmith
from recsmith.bounds import first_bound
from recsmith.costs import Evaluator, cost_model
from recsmith.problems import build_problem

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
DEVICES = ("#1f6fb4", "#e08e0b", "#2a9d6f", "#b5489d")
PARTS = {
    "forward compute": ("forward_compute_s", "#1f6fb4"),
    "backward compute": ("backward_compute_s", "#5aa5de"),
    "backward communication": ("backward_comm_s", "#e08e0b"),
    "wait for the slowest": ("wait_s", "#d9d9d9"),
    "forward communication": ("forward_comm_s", "#f4c069"),
}
Parts = list[str]


def box(x: float, y: float, wide: float, high: float, colour: str, edge: str = "#fff") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}" stroke="{edge}"/>'


def words(x: float, y: float, told: str, side: str = "middle", size: int = 12, colour: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{side}" font-size="{size}" fill="{colour}">{escape(told)}</text>'
    )


def line(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    told = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{told}" fill="none" stroke="{colour}" stroke-width="2" {more}/>'


def write(name: str, title: str, wide: int, high: int, parts: Parts) -> None:
    """An SVG on white, which reads on light and on dark pages."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" role="img">'
        f"<title>{escape(title)}</title>"
    )
    path = PICTURES / f"how-{name}.svg"
    path.write_text("\n".join([head, box(0, 0, wide, high, "#fff"), *parts, "</svg>"]) + "\n", "utf-8")
    print(f"wrote {path.name}, {path.stat().st_size / 1024:.0f} KiB")


# --- sharding types -----------------------------------------------------------------------------------------------

# A table as 4 x 4 cells, rows of columns: which device holds each; two hosts with devices 0, 1 and 2, 3.
TYPES = {
    "table_wise": ["0000"] * 4,
    "column_wise": ["0123"] * 4,
    "table_column_wise": ["0011"] * 4,
    "row_wise": ["0000", "1111", "2222", "3333"],
    "table_row_wise": ["0000", "0000", "1111", "1111"],
    "grid_shard": ["0022", "0022", "1133", "1133"],
}


def table(x: float, y: float, cells: Sequence[str], cell: float = 22) -> Parts:
    return [
        box(x + cell * j, y + cell * i, cell, cell, DEVICES[int(device)])
        for i, row in enumerate(cells)
        for j, device in enumerate(row)
    ]


def types() -> None:
    parts: Parts = []
    for number, (name, cells) in enumerate(TYPES.items()):
        x, y = 30 + 180 * (number % 4), 40 + 160 * (number // 4)
        parts += [words(x + 44, y - 10, name), *table(x, y, cells)]
    x, y = 30 + 180 * 2, 200
    parts.append(words(x + 44, y - 10, "data_parallel"))
    for device in range(4):
        parts += table(x + 52 * (device % 2), y + 48 * (device // 2), [str(device) * 4] * 4, 10)
    for device, colour in enumerate(DEVICES):
        parts += [box(575, 205 + 22 * device, 14, 14, colour),
                  words(597, 217 + 22 * device, f"device {device}, host {device // 2}", "start")]  # fmt: skip
    write("types", "One table under the seven sharding types of TorchRec", 740, 320, parts)


# --- the time of a step -------------------------------------------------------------------------------------------


def step() -> None:
    plan = recsmith.plan("dlrm-v2", "h100:8").plan
    bound, scale = plan.bound.value_s or 0.0, 560 / plan.cost.total_s
    parts: Parts = []
    for rank, device in enumerate(plan.cost.per_device):
        x, y = 70.0, 20 + 26 * rank
        parts.append(words(60, y + 14, f"rank {rank}", "end"))
        for key, colour in PARTS.values():
            wide = getattr(device, key) * scale
            parts.append(box(x, y, wide, 19, colour))
            x += wide
    foot = 20 + 26 * len(plan.cost.per_device)
    parts.append(line([(70 + bound * scale, 10), (70 + bound * scale, foot + 4)], "#b3261e", 'stroke-dasharray="5 3"'))
    parts.append(words(70 + bound * scale, foot + 18, f"bound {bound * 1e3:.3f} ms", "end", colour="#b3261e"))
    parts.append(words(630, foot + 34, f"step {plan.cost.total_s * 1e3:.3f} ms", "end"))
    for number, (name, (_, colour)) in enumerate(PARTS.items()):
        x, y = 70 + 190 * (number % 3), foot + 50 + 20 * (number // 3)
        parts += [box(x, y, 14, 14, colour), words(x + 20, y + 12, name, "start")]
    write("step", "Seconds of every device in a step, and the bound", 660, foot + 100, parts)


# --- plans and bounds ---------------------------------------------------------------------------------------------


def search() -> None:
    workload, costs, bounds = recsmith.sample_workload(20, seed=0), list[float](), list[float]()

    def cheaper(total_s: float) -> None:
        costs.append(total_s)

    def higher(_: float, bound_s: float) -> None:
        if not bounds or bound_s > bounds[-1]:
            bounds.append(bound_s)

    first = first_bound(evaluator_of(workload)).bound.value_s or 0.0
    asked: dict[str, Any] = {"cost_model": "analytic", "prove": True, "time_limit_s": 16}
    recsmith.plan(workload, "h100:4", on_improve=cheaper, on_bound=higher, **asked)
    bounds.insert(0, first)
    most, least = costs[0] * 1.02, min(bounds) * 0.97

    def at(value: float) -> float:
        return 30 + 220 * (most - value) / (most - least)

    parts = [line([(80, 25), (80, 255), (640, 255)], "#888")]
    for value in (400, 425, 450, 475, 500, 525):
        if least < value * 1e-6 < most:
            parts += [line([(80, at(value * 1e-6)), (640, at(value * 1e-6))], "#eee"),
                      words(72, at(value * 1e-6) + 4, f"{value} us", "end")]  # fmt: skip
    for values, colour in ((costs, "#1f6fb4"), (bounds, "#b3261e")):
        wide, points = 540 / len(values), list[tuple[float, float]]()
        for number, value in enumerate(values):
            points += [(90 + wide * number, at(value)), (90 + wide * (number + 1), at(value))]
        parts.append(line(points, colour))
    parts += [words(275, 60, "best plan so far", "start", colour="#1f6fb4"),
              words(275, at(bounds[-1]) + 24, "bound so far", "start", colour="#b3261e"),
              words(640, 272, "every improvement, in order", "end")]  # fmt: skip
    write("search", "The best plan gets cheaper, and the bound rises", 660, 285, parts)


def evaluator_of(workload: recsmith.Workload) -> Evaluator:
    return cost_model("analytic").compile(build_problem(workload, recsmith.load_cluster("h100:4")))


# --- learned cost models ------------------------------------------------------------------------------------------


def learned() -> None:
    parts: Parts = []
    for number in range(3):
        y = 30 + 62 * number
        parts += [box(20, y, 120, 42, "#dbe9f6", "#1f6fb4"), words(80, y + 18, f"table {number + 1}"),
                  words(80, y + 34, "rows, columns, ids ...", size=10),
                  line([(140, y + 21), (190, y + 21)], "#888", ARROW),
                  box(190, y, 120, 42, "#fdf0d9", "#e08e0b"), words(250, y + 18, "network"),
                  words(250, y + 34, "the same for all", size=10),
                  line([(310, y + 21), (360, 113)], "#888", ARROW)]  # fmt: skip
    parts += [box(360, 92, 110, 42, "#f2f2f2", "#888"), words(415, 110, "sums of terms"),
              words(415, 126, "of the group", size=10), line([(470, 113), (510, 113)], "#888", ARROW),
              box(510, 92, 90, 42, "#fdf0d9", "#e08e0b"), words(555, 118, "head"),
              line([(600, 113), (640, 113)], "#888", ARROW), words(648, 110, "seconds forward", "start"),
              words(648, 126, "seconds backward", "start")]  # fmt: skip
    write("learned", "From the tables of a group to the seconds of their kernel", 770, 220, [MARKER, *parts])


ARROW = 'marker-end="url(#a)"'
MARKER = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs>'
)

# --- rooms --------------------------------------------------------------------------------------------------------

HOUSE = re.compile(r"^([a-z]+) {2,}([a-z]+(?:(?:, | -> )[a-z]+)*)$", re.MULTILINE)  # of CONTRIBUTING.md


def rooms() -> None:
    parts: Parts = []
    groups = HOUSE.findall((PICTURES.parents[1] / "CONTRIBUTING.md").read_text("utf-8"))
    for row, (group, names) in enumerate(groups):
        y = 16 + 40 * row
        parts.append(words(92, y + 20, group, "end"))
        parts += [
            part
            for place, name in enumerate(re.findall(r"[a-z]+", names))
            for part in (box(104 + 94 * place, y, 88, 30, "#dbe9f6", "#1f6fb4"), words(148 + 94 * place, y + 19, name))
        ]
    foot = 16 + 40 * len(groups)
    parts += [MARKER, line([(690, foot - 12), (690, 22)], "#888", ARROW), words(682, foot - 14, "imports", "end")]
    write("rooms", "Rooms import only rooms before them", 710, foot + 4, parts)


if __name__ == "__main__":
    types()
    step()
    search()
    learned()
    rooms()
