"""Kernels of data_parallel tables: a fit of what was measured, beside formulas.

python benchmarks/gpu/copies.py h100             # how far each price is off shapes that the fit did not see
python benchmarks/gpu/copies.py h100 --write     # ... and the fit of all shapes into the card of neural:h100

90 shapes were measured on each GPU: forward, backward into a new gradient, and a step of each optimizer, one for each
table. Beyond launches and the formula's forward pass, they are fitted by seconds a table and seconds a byte of weights,
by optimizer, 0 or more, by least squares of relative errors. Shapes of odd numbers fit, those of even ones judge: a
shape has tables of its own. Takes a quarter of a minute.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from production import Row, known_rows, lines_of

from recsmith._types import Bools, Floats
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.files import CopySeconds, find_model, load_model, load_tensors, save_model
from recsmith.costs.neural.inputs import OPTIMIZERS
from recsmith.learning.preparation import non_negative_fit
from recsmith.problems import Space, build_problem
from recsmith.workloads import AccessProfile, Feature, Table, Workload

CASES = Path("samples/h100-production")
SECONDS = {"h100": None, "h200": Path("samples/h200-production/rows.jsonl.xz")}
SPACE = Space(types=("data_parallel",), kernels=("dense",))


@dataclass(frozen=True)
class Shapes:
    """Shapes (N,) of an optimizer: tables and bytes (N, 2), measured seconds, and the formula's, forward and backward.

    The formula's are without launches, (N, 2).
    """

    figures: Floats
    measured: Floats
    formula: Floats

    def take(self, which: Bools) -> "Shapes":
        """Some of them."""
        return Shapes(self.figures[which], self.measured[which], self.formula[which])

    def fit(self, launch: float) -> CopySeconds:
        """The seconds of a table and of a byte beyond launches."""
        rest = self.measured - launch - self.formula[:, 0]
        table_s, byte_s = non_negative_fit(self.figures / self.measured[:, None], rest / self.measured).tolist()
        return CopySeconds(table_s=table_s, byte_s=byte_s)

    def by(self, found: CopySeconds, launch: float) -> Floats:
        """Seconds of a fit (N,)."""
        return launch + self.formula[:, 0] + self.figures @ [found.table_s, found.byte_s]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", choices=list(SECONDS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cases, path = measured_cases(SECONDS[options.gpu]), find_model(options.gpu)
    weights, card = load_model(path)
    launch, cluster = float(weights.head.launch.sum()), load_cluster(f"{options.gpu}:2")
    shapes = {optimizer: shapes_of(cases, optimizer, cluster) for optimizer in OPTIMIZERS}
    print("\n".join(table(shapes, [number for number, *_ in cases], launch, card.analytic_factor)))
    if options.write:
        copies = {optimizer: each.fit(launch) for optimizer, each in shapes.items()}
        save_model(str(path), load_tensors(path)[0], replace(card, copies=copies))


def table(shapes: dict[str, Shapes], numbers: Sequence[int], launch: float, factor: float) -> Iterator[str]:
    """Held-out errors of the fit, of the formula, and of the formula times the factor of the card."""
    yield "| optimizer | price | predicted / measured, median | off by, median | 90th percentile |"
    yield "|---|---|---|---|---|"
    fits = np.array(numbers) % 2 == 1
    for optimizer, found in shapes.items():
        judges, fitted = found.take(~fits), found.take(fits).fit(launch)
        formula = judges.formula.sum(axis=1)
        prices = {"fit": judges.by(fitted, launch), "formula": launch + formula}
        prices[f"formula x {factor:.2f}"] = launch + formula * factor
        for name, seconds in prices.items():
            ratios = seconds / judges.measured
            middle, high = np.percentile(np.abs(ratios - 1), (50, 90))
            yield f"| {optimizer} | {name} | {np.median(ratios):.2f} | {middle:.1%} | {high:.1%} |"


def measured_cases(seconds: Path | None) -> list[tuple[int, Row, Row]]:
    """(number, what the tables are, what they took) of each shape."""
    found = {key: (case, row) for key, case, row in known_rows(CASES) if case["kind"] == "copies"}
    if seconds is not None:
        took = {row["key"]: row for row in lines_of(seconds) if row.get("status") == "ok"}
        found = {key: (case, took[key]) for key, (case, _) in found.items() if key in took}
    return [(int(key.rpartition("-")[2]), case, row) for key, (case, row) in found.items()]


def shapes_of(cases: Sequence[tuple[int, Row, Row]], optimizer: str, cluster: Cluster) -> Shapes:
    formula, figures = list[Floats](), list[tuple[int, int]]()
    for _, case, _ in cases:
        problem = build_problem(workload_of(case, optimizer), cluster, SPACE)
        terms = (
            cost_model("analytic")
            .compile(problem)
            .terms(np.arange(len(problem.tables)), problem.demand.dim[problem.modes.table])
        )
        formula.append(np.maximum(terms[:, [1, 3]], terms[:, [2, 4]]).sum(axis=0))
        figures.append((len(problem.tables), problem.workload.weight_bytes))
    took = [row["forward_s"] + row["backward_s"] + row["step_s"][optimizer] for _, _, row in cases]
    return Shapes(np.array(figures, dtype=np.float64), np.array(took), np.array(formula))


def workload_of(case: Row, optimizer: Any) -> Workload:
    figures = zip(case["rows"], case["dim"], case["pooling"], case["zipf"], strict=True)
    return Workload(
        batch_size=case["batch"], optimizer=optimizer,
        tables=tuple(
            Table(
                name=f"{i}", num_embeddings=rows, embedding_dim=dim, access=AccessProfile(zipf=zipf),
                features=(Feature(name=f"{i}", pooling_factor=pooling),),
            )
            for i, (rows, dim, pooling, zipf) in enumerate(figures)
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
