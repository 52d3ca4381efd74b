"""Pictures of a learned cost model on the cases that its training never saw: docs/pictures/learning-*.svg.

    python benchmarks/learning_pictures.py --data shipped:cpu --model cpu            # seconds
    python benchmarks/learning_pictures.py --data shipped:cpu --model cpu --curve    # trains four times more: minutes

predicted: seconds of forward and backward together. errors: |predicted / measured - 1| of eighths of the cases, in
order of the number of tables, columns of a table (mean), work (measuring/compute/cases.py) and ids per unique row.
curve: the same error, of models trained on some of the training samples; the last point is the model.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural.files import Card, Weights, find_model, load_model, weights_of
from recsmith.learning.costs import Groups, read_groups, work_of_case
from recsmith.learning.costs.learn import predict
from recsmith.learning.costs.training import CostRecipe, train
from recsmith.learning.preparation import errors, split
from recsmith.measuring.about import locate

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
BLUE, RED = 'stroke="#1f6fb4" stroke-width="2"', 'stroke="#d1495b" stroke-width="2" stroke-dasharray="5 3"'
WIDE, HIGH = 365, 270  # of a panel
LEFT, TOP, ACROSS, UP = 55, 40, 290, 195  # of its axes
BINS = 8
SIZES = (500, 1000, 2000, 4000)

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From least to most, logarithmic or not, with words at ticks."""

    least: float
    most: float
    ticks: dict[float, str]
    log: bool = True

    def at(self, values: Floats) -> Floats:
        """Shares of the way, 0 to 1."""
        low, high, inner = (np.log(each) if self.log else each for each in (self.least, self.most, values))
        return np.clip((inner - low) / (high - low), 0, 1)


@dataclass(frozen=True)
class Panel:
    """A title, two axes, and what is drawn between them: points (n, 2), and lines by name.

    bands: behind the lines, in their colours: across, from, to (n, 3).
    """

    title: str
    across: Axis
    up: Axis
    points: Floats
    lines: dict[str, Floats]
    bands: Sequence[Floats] = ()

    def svg(self, left: int, top: int) -> list[str]:
        """Its elements, moved to a place."""
        parts = [f'<path d="M{LEFT} {TOP}V{TOP + UP}H{LEFT + ACROSS}" fill="none" stroke="#888"/>']
        words = [(WIDE / 2, 20.0, "middle", self.title)]
        for value, word in self.across.ticks.items():
            x, _ = self._place(np.array([[value, self.up.least]]))[0]
            words.append((x, TOP + UP + 18.0, "middle", word))
        for value, word in self.up.ticks.items():
            _, y = self._place(np.array([[self.across.least, value]]))[0]
            words.append((LEFT - 6.0, y + 4, "end", word))
            parts.append(f'<path d="M{LEFT} {y:.0f}h{ACROSS}" stroke="#ddd" stroke-width=".5"/>')
        if len(self.points):
            dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in self._place(self.points))
            parts.append(f'<path d="{dots}" stroke="#1f6fb4" stroke-opacity=".35" stroke-width="3" '
                         'stroke-linecap="round"/>')  # fmt: skip
        for i, band in enumerate(self.bands):
            outline = self._place(np.concatenate([band[:, :2], band[::-1, ::2]]))
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
            parts.append(f'<polygon points="{places}" fill="{("#1f6fb4", "#d1495b")[i]}" fill-opacity=".15"/>')
        for i, (name, line) in enumerate(self.lines.items()):
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in self._place(line))
            parts.append(f'<polyline points="{places}" fill="none" {(BLUE, RED)[i]}/>')
            parts.append(f'<path d="M{LEFT + 12} {TOP + 8 + 16 * i}h24" {(BLUE, RED)[i]}/>')
            words.append((LEFT + 42.0, TOP + 12.0 + 16 * i, "start", name))
        parts += [f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{side}">{word}</text>' for x, y, side, word in words]
        return [f'<g transform="translate({left} {top})">', *parts, "</g>"]

    def _place(self, points: Floats) -> list[Point]:
        x, y = LEFT + ACROSS * self.across.at(points[:, 0]), TOP + UP * (1 - self.up.at(points[:, 1]))
        return list(zip(x.tolist(), y.tolist(), strict=True))


def picture(*rows: Sequence[Panel]) -> str:
    """An SVG of rows of panels, on white so that it reads on any page."""
    wide, high = WIDE * max(map(len, rows)), HIGH * len(rows)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">'
    )
    body = [part for j, row in enumerate(rows) for i, panel in enumerate(row) for part in panel.svg(WIDE * i, HIGH * j)]
    return "\n".join([head, f'<rect width="{wide}" height="{high}" fill="#fff"/>', *body, "</svg>"]) + "\n"


# --- the pictures -------------------------------------------------------------------------------------------------


def predicted_panel(predicted: Floats, measured: Floats) -> Panel:
    both = np.concatenate([predicted, measured])
    axis = Axis(both.min() / 1.2, both.max() * 1.2, {10.0**n: word for n, word in WORDS.items()
                if both.min() / 1.2 <= 10.0**n <= both.max() * 1.2})  # fmt: skip
    same = np.array([[axis.least] * 2, [axis.most] * 2])
    title = "Predicted (up) and measured (across), a dot a group"
    return Panel(title, axis, axis, np.stack([measured, predicted], axis=1), {"equal": same})


WORDS = {-5: "10 us", -4: "100 us", -3: "1 ms", -2: "10 ms", -1: "100 ms", 0: "1 s"}


def errors_panels(groups: Groups, off: Floats) -> list[list[Panel]]:
    """Median and mean error over four figures of a group."""
    columns = groups.outputs / (groups.batch * groups.tables)
    reuse = groups.summed(groups.ids) / np.maximum(groups.summed(groups.unique), 1)
    figures = {"Tables of a group": groups.tables.astype(np.float64), "Columns of a table, mean": columns,
               "Work, in rows of 64 columns": work_of_case(groups), "Ids per different row": reuse}  # fmt: skip
    binned = [(name, *_binned(figure, off)) for name, figure in figures.items()]
    most = max(mean[:, 1].max() for *_, mean in binned) * 1.15
    up = Axis(0.0, most, {share: f"{share:.0%}" for share in np.arange(0, most, 0.05)}, log=False)
    panels = [
        Panel(f"Error by: {name}", _log_axis(median[:, 0]), up, np.zeros((0, 2)), {"median": median, "mean": mean})
        for name, median, mean in binned
    ]
    return [panels[:2], panels[2:]]


def _binned(figure: Floats, off: Floats) -> tuple[Floats, Floats]:
    """Median and mean errors of eighths of the groups in order of a figure, at its median: (8, 2) each."""
    parts = np.array_split(np.argsort(figure, kind="stable"), BINS)
    at = [max(float(np.median(figure[part])), 1e-3) for part in parts]
    return (np.array([at, [np.median(off[part]) for part in parts]]).T,
            np.array([at, [np.mean(off[part]) for part in parts]]).T)  # fmt: skip


def _log_axis(values: Floats) -> Axis:
    """Around values, with ticks at some of them."""
    chosen = values[np.linspace(0, len(values) - 1, 5).astype(int)].tolist()
    return Axis(values.min(), values.max() * 1.0001, {value: _short(value) for value in chosen})


def _short(value: float) -> str:
    """Such as 1.2, 21, 1,548, 33k, 1.7M."""
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.0f}k"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def curve_panel(sizes: Sequence[int], scores: Floats, floor: float) -> Panel:
    most = scores.max() * 1.2
    up = Axis(0.0, most, {share: f"{share:.0%}" for share in np.arange(0, most, 0.02)}, log=False)
    at = np.array(sizes, dtype=np.float64)
    across = Axis(at[0], at[-1] * 1.0001, {size: f"{size:,}" for size in sizes})
    lines = {name: np.stack([at, scores[:, i]], axis=1) for i, name in enumerate(("median", "mean"))}
    title = f"Error by number of training samples (noise floor {floor:.1%})"
    return Panel(title, across, up, np.zeros((0, 2)), lines)


# --- what is drawn ------------------------------------------------------------------------------------------------


def curve(parts: Sequence[Groups], weights: Weights, card: Card) -> tuple[list[int], Floats]:
    """(numbers of training samples, (n, 2) medians and means of the errors)."""
    learning, choosing, judging = parts
    sizes, scores = list[int](), list[Floats]()
    order = np.random.default_rng(card.seed).permutation(len(learning))
    recipe = CostRecipe(variant=card.variant, seed=card.seed)
    for size in (*(size for size in SIZES if size < len(learning)), len(learning)):
        found = weights
        if size < len(learning):
            some = learning.take(np.isin(np.arange(len(learning)), order[:size]))
            found = weights_of(train(recipe, some, choosing)[0].tensors(), card.variant, "")
        off = _errors(found, judging)
        sizes.append(size)
        scores.append(np.array([np.median(off), off.mean()]))
        print(f"{size:,} samples: {scores[-1][0]:.1%} median, {scores[-1][1]:.1%} mean", flush=True)
    return sizes, np.array(scores)


def _errors(weights: Weights, groups: Groups) -> Floats:
    return errors(predict(weights, groups).sum(axis=1), groups.total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the samples that the model was trained on")
    parser.add_argument("--model", required=True, help="a name that ships, or a .safetensors file")
    parser.add_argument("--curve", action="store_true", help="train on fewer samples too")
    words = parser.parse_args()
    weights, card = load_model(find_model(words.model))
    groups, _, _ = read_groups([locate(word) for word in words.data.split(",")])
    assert groups.digest == card.data, "the model was not trained on these samples"
    parts = [groups.take(kept) for kept in split(groups.case, card.seed)]
    judging, off = parts[2], _errors(weights, parts[2])
    print(f"{len(off):,} held-out groups: {np.median(off):.1%} median, {off.mean():.1%} mean")
    drawn = {"predicted": [[predicted_panel(predict(weights, judging).sum(axis=1), judging.total)]],
             "errors": errors_panels(judging, off)}  # fmt: skip
    if words.curve:
        drawn["curve"] = [[curve_panel(*curve(parts, weights, card), card.noise.median or 0.0)]]
    for name, rows in drawn.items():
        path = PICTURES / f"learning-{name}.svg"
        path.write_text(picture(*rows), "utf-8")
        print(f"wrote {path.name}, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
