"""Kernels of sequence tables (pooling: none) on a CPU core: measured, fitted, and judged on shapes held apart.

    python benchmarks/sequences.py measure rows.jsonl --seconds 1400
    python benchmarks/sequences.py fit samples/cpu-sequences/rows.jsonl.xz           # docs/benchmarks/loads.md
    python benchmarks/sequences.py fit samples/cpu-sequences/rows.jsonl.xz --write   # ... into the card of neural:cpu

Shapes are drawn evenly in the logarithm of rows, columns, ids and tables; a tenth of them are pooled ones, whose
measured seconds over those of neural:cpu are this machine's factor. Sequences' seconds are divided by it. Shapes of odd
numbers fit, those of even numbers judge: a shape has tables of its own.
"""

import argparse
import json
import lzma
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith import AccessProfile, Feature, Table, Workload, load_cluster
from recsmith._types import Bools, Floats, Ints
from recsmith.costs import cost_model
from recsmith.costs.neural.files import find_model, load_model, load_tensors, save_model
from recsmith.costs.neural.sequences import SequenceSeconds, sequence_figures, sequences_of
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.hardware import Case, load_hardware, scale_of
from recsmith.hardware.case import CASES, KeyedRandom
from recsmith.learning.preparation import non_negative_fit
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

SEED = 3
MOST_IDS, MOST_OUTPUTS, MOST_ELEMENTS = 2**18, 2**24, 2**26
SHAPES = 950  # that are measured, one after the other, and again from the first one
POOLED_EVERY = 10  # shapes, one of which is pooled
Row = dict[str, Any]


def case_of(number: int, seed: int = SEED) -> Case:
    """The shape of a number: one kernel of equal-width tables."""
    draws = KeyedRandom(seed, number, CASES)
    optimizer = CPU_OPTIMIZERS[int(draws.uniform(1)[0] * len(CPU_OPTIMIZERS))]
    data_type = ("fp32", "fp16")[int(draws.uniform(1)[0] < 0.3)]
    pooling = "sum" if number % POOLED_EVERY == 0 else "none"
    dim = 4 * round(float(draws.between(1, 64, 1)[0]))
    count = int(draws.between(1, 17, 1)[0])
    ids = draws.between(500, min(MOST_IDS, MOST_OUTPUTS // dim), 1)[0] / count
    rows = np.minimum(draws.between(100, 2e6, count), MOST_ELEMENTS // dim // count).astype(np.int64)
    zipf, skew = draws.uniform(count) * 1.6, draws.between(0.3, 3.0, count)
    length = float(draws.between(1, 200, 1)[0])
    batch = max(1, round(ids / length))
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=max(int(rows[i]), 1), embedding_dim=dim, pooling=pooling,
              data_type=data_type,
              features=(Feature(name=f"t{i}", pooling_factor=max(length * float(skew[i]) / skew.mean(), 0.01)),),
              access=AccessProfile(zipf=round(float(zipf[i]), 3)))
        for i in range(count)
    )  # fmt: skip
    return Case(seed=seed, number=number, workload=Workload(batch_size=batch, optimizer=optimizer, tables=tables))


def measure(path: Path, seconds: float) -> None:
    """Appends measured shapes until the time is over."""
    known = len(path.read_text().splitlines()) if path.exists() else 0
    scale = replace(scale_of("cpu"), name="sequences", elements=MOST_ELEMENTS + 4096, outputs=MOST_OUTPUTS * 2)
    hardware = load_hardware("cpu", scale)
    begun = time.monotonic()
    with path.open("a") as file:
        while time.monotonic() < begun + seconds:
            number = known % SHAPES
            found = hardware.measure(case_of(number))
            row = {"number": number, "status": found.status, "forward_s": found.forward_s, "spread": found.spread,
                   "backward_s": found.backward_s, "probe_s": found.probe_s, "probe_moved": found.probe_moved,
                   "unique_rows": found.unique_rows, "message": found.message}  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
            known += 1
    print(f"{known} visits of {SHAPES} shapes on {hardware.device}, {hardware.versions}")


@dataclass(frozen=True)
class Shapes:
    """Measured shapes (N,), of visits that are each divided by how slow the probe beside them was.

    number, kind: place in the list of kinds. forward, backward: figures (N, f), (N, b). seconds (N, 2).
    """

    number: Ints
    kind: Ints
    forward: Floats
    backward: Floats
    seconds: Floats
    visits: tuple[Floats, ...]

    def take(self, which: Bools) -> "Shapes":
        """Some of them."""
        visits = tuple(each for each, kept in zip(self.visits, which, strict=True) if kept)
        return Shapes(
            self.number[which], self.kind[which], self.forward[which], self.backward[which], self.seconds[which], visits
        )


KINDS = [(optimizer, data_type) for optimizer in CPU_OPTIMIZERS for data_type in ("fp32", "fp16")]
MOVED = 0.2  # of the probe within a visit: what moved more is left out
OWN = {"forward": (2,), "backward": (3, 5)}  # figures whose seconds each kind has of its own
STEPS = 30  # of a fit, each of which weighs shapes by how far the last one was off them


def shapes_of(path: Path) -> tuple[Shapes, float]:
    """The sequences among measured shapes, and the machine's factor over neural:cpu, of the pooled ones."""
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    rows = [row for row in rows if row["status"] == "ok"]
    usual = float(np.median([row["probe_s"] for row in rows]))
    visits: dict[int, list[tuple[float, float]]] = defaultdict(list)
    unique = {row["number"]: row["unique_rows"] for row in rows if "unique_rows" in row}
    rows = [row for row in rows if row["probe_moved"] < MOVED]
    for row in rows:
        slow = row["probe_s"] / usual
        visits[row["number"]].append((row["forward_s"] / slow, row["backward_s"] / slow))
    model, device = cost_model("neural:cpu"), one_device(load_cluster("cpu:1"))
    pooled = [number for number in visits if number % POOLED_EVERY == 0]
    ratios = [
        np.median(visits[number], axis=0).sum() / group_seconds(model, case_of(number).workload, device).sum()
        for number in pooled
    ]
    numbers = np.array([number for number in visits if number % POOLED_EVERY])
    made = [_figures(case_of(number), unique[number]) for number in numbers.tolist()]
    kinds = [KINDS.index((case_of(n).workload.optimizer, case_of(n).data_type)) for n in numbers.tolist()]
    seconds = np.array([np.median(visits[number], axis=0) for number in numbers.tolist()])
    found = Shapes(
        numbers, np.array(kinds), np.array([one for one, _ in made]), np.array([other for _, other in made]), seconds,
        tuple(np.array(visits[number]) for number in numbers.tolist()),
    )  # fmt: skip
    return found, float(np.median(ratios))


def _figures(case: Case, unique: list[int]) -> tuple[Floats, Floats]:
    """Figures of a whole case, forward and backward."""
    tables = case.tables
    width = np.full(len(tables), float(tables[0].embedding_dim))
    made = sequence_figures(
        np.array(case.lookups, dtype=np.float64), np.array(unique, dtype=np.float64), width,
        np.full(len(tables), float(tables[0].element_bytes)),
    )  # fmt: skip
    return made[0].sum(axis=0), made[1].sum(axis=0)


def fitted(some: Shapes, launches: Floats, factor: float) -> dict[str, SequenceSeconds]:
    """Seconds of each figure, by kind: those in OWN of each kind alone, the others of all.

    launches: seconds (2,) of a kernel's launches, which the model counts by itself.
    """
    units: list[Floats] = []
    for way, figures in enumerate((some.forward, some.backward)):
        own = OWN["backward" if way else "forward"]
        split = [figures[:, [i]] * (some.kind[:, None] == np.arange(len(KINDS))) for i in own]
        rest = [i for i in range(figures.shape[1]) if i not in own]
        wide = np.hstack([figures[:, rest], *split])
        solved = _solved(wide, some.seconds[:, way] / factor, launches[way])
        table = np.zeros((len(KINDS), figures.shape[1]))
        table[:, rest] = solved[: len(rest)]
        for place, i in enumerate(own):
            table[:, i] = solved[len(rest) + place * len(KINDS) :][: len(KINDS)]
        units.append(table)
    return {
        sequences_of(*kind): SequenceSeconds(forward=tuple(units[0][i].tolist()), backward=tuple(units[1][i].tolist()))
        for i, kind in enumerate(KINDS)
    }


def _solved(figures: Floats, seconds: Floats, launch: float) -> Floats:
    """Units of 0 or more whose predictions are nearest by their absolute relative errors, by repeated least squares."""
    weight = np.ones(len(seconds))
    units = np.zeros(figures.shape[1])
    for _ in range(STEPS):
        scale = weight / seconds
        units = non_negative_fit(figures * scale[:, None], weight - launch * scale)
        ratio = (figures @ units + launch) / seconds
        weight = 1 / np.sqrt(np.maximum(np.abs(ratio - 1), 0.03) * np.maximum(ratio, 0.3))
    return units


def predicted(some: Shapes, found: dict[str, SequenceSeconds], launches: Floats, factor: float) -> Floats:
    """Seconds (N, 2) of this machine."""
    units = [found[sequences_of(*KINDS[kind])] for kind in some.kind.tolist()]
    forward = (some.forward * np.array([each.forward for each in units])).sum(axis=1)
    backward = (some.backward * np.array([each.backward for each in units])).sum(axis=1)
    return factor * (np.stack([forward, backward], axis=1) + launches)


def table(some: Shapes, guess: Floats, before: Floats) -> Iterator[str]:
    """How far predictions are off, and what `before` was."""
    yield "| kernels | shapes | before: predicted / measured | now, median | off by, median | mean | 90th percentile |"
    yield "|---|---|---|---|---|---|---|"
    sums = {"forward": [0], "backward": [1], "both": [0, 1]}
    rows = [(name, ways, np.ones(len(some.number), dtype=bool)) for name, ways in sums.items()]
    rows += [(f"both, {' '.join(kind)}", [0, 1], some.kind == i) for i, kind in enumerate(KINDS)]
    for name, ways, which in rows:
        took = some.seconds[which][:, ways].sum(axis=1)
        ratio, old = guess[which][:, ways].sum(axis=1) / took, before[which][:, ways].sum(axis=1) / took
        off = np.abs(ratio - 1)
        middle, high = np.percentile(off, (50, 90))
        yield (
            f"| {name} | {len(ratio)} | {np.median(old):.2f} | {np.median(ratio):.2f} | {middle:.1%} | "
            f"{off.mean():.1%} | {high:.1%} |"
        )
    again = [each.sum(axis=1) for each in some.visits if len(each) > 1]
    apart = [abs(each[1] / each[0] - 1) for each in again]
    if apart:
        yield f"two visits of a shape are {np.median(apart):.1%} apart, in the median of {len(apart)}"


def formula_seconds(some: Shapes, factor: float) -> Floats:
    """Seconds (N, 2) of the formula that priced sequences before."""
    path = find_model("cpu")
    model, device = cost_model("analytic"), one_device(load_cluster("cpu:1"))
    times = factor * load_model(path)[1].analytic_factor
    return times * np.array([group_seconds(model, case_of(n).workload, device) for n in some.number.tolist()])


def fit(path: Path, *, write: bool) -> None:
    """Prints the table of the page; write: all shapes' fit into the card."""
    model = find_model("cpu")
    weights, card = load_model(model)
    shapes, factor = shapes_of(path)
    odd = shapes.number % 2 == 1
    judges = shapes.take(~odd)
    found = fitted(shapes.take(odd), weights.head.launch, factor)
    print(f"pooled kernels take {factor:.2f} times as long as neural:cpu says")
    guess = predicted(judges, found, weights.head.launch, factor)
    print("\n".join(table(judges, guess, formula_seconds(judges, factor))))
    if write:
        sequences = fitted(shapes, weights.head.launch, factor)
        save_model(str(model), load_tensors(model)[0], replace(card, sequences=sequences))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "fit"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.part == "measure":
        measure(given.rows, given.seconds)
    else:
        fit(given.rows, write=given.write)
