"""Where formulas are off, against measured groups: a table by regime.

    python benchmarks/gpu/regimes.py --data results/samples
    python benchmarks/gpu/regimes.py --data shipped:cpu --groups 1000

Cost model `analytic` and, of a GPU that can be simulated, `simulated:<gpu>`: predicted / measured seconds of forward
and of backward, the median of the groups of a regime and the middle half of them. 1 is right, 2 is twice too slow.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.fitted_kernels import MULTIPROCESSORS
from recsmith.costs.neural.inputs import DATA_TYPES, OPTIMIZERS
from recsmith.errors import RecSmithError
from recsmith.hardware import Case, load_hardware
from recsmith.learning.costs import Groups, read_groups
from recsmith.learning.costs.baselines import cluster_of, formula_seconds, workload_of
from recsmith.measuring.about import locate

MOST_GROUPS = 2000
SECONDS = (0, 2e-4, 1e-3, 5e-3, np.inf)  # edges of what a group takes, forward and backward together
TABLES, COLUMNS = (1, 2, 10, np.inf), (4, 16, 64, 128, np.inf)
READS = (0, 1.5, 4, 16, np.inf)  # ids a different row


def main() -> None:
    parser = argparse.ArgumentParser(description="Predicted over measured seconds by regime.")
    parser.add_argument("--data", required=True, help="folders of measurements, with commas between")
    parser.add_argument("--groups", type=int, default=MOST_GROUPS, help="of the folders' at most: each takes 10 ms")
    options = parser.parse_args()
    print("\n".join(table([locate(word) for word in options.data.split(",")], options.groups)))


def table(folders: Sequence[Path], most: int = MOST_GROUPS) -> Iterator[str]:
    """The table's lines, of at most so many groups."""
    groups, _, origin = read_groups(folders)
    groups = groups.take(np.arange(len(groups)) % -(-len(groups) // most) == 0)
    cluster = cluster_of(origin)
    assert cluster is not None, f"the catalogue lacks {origin.device}"
    models = {"analytic": formula_seconds(groups, cluster)}
    if cluster.device.name in MULTIPROCESSORS:
        models["simulated"] = simulated_seconds(groups, cluster.device.name)
    yield f"{origin.hardware}, {origin.device}; {len(groups):,} groups\n"
    parts = [f"{name} {part}" for name in models for part in ("forward", "backward")]
    yield f"| groups with | groups | {' | '.join(parts)} |\n|---|---|{'---|' * len(parts)}"
    ratios = np.hstack([seconds / groups.seconds for seconds in models.values()])
    for name, kept in regimes(groups):
        if kept.any():
            yield f"| {name} | {kept.sum():,} | {' | '.join(cell(values) for values in ratios[kept].T)} |"


def simulated_seconds(groups: Groups, device: str) -> Floats:
    hardware = load_hardware(f"simulated:{device}", "jobs")
    found = [hardware.measure(Case(seed=0, number=i, workload=workload_of(groups, i))) for i in range(len(groups))]
    return np.array([(each.forward_s, each.backward_s) for each in found], dtype=np.float64)


def regimes(groups: Groups) -> Iterator[tuple[str, Bools]]:
    yield "all", np.ones(len(groups), dtype=bool)
    columns = groups.summed(groups.ids * groups.dim) / np.maximum(groups.summed(groups.ids), 1)
    reads = groups.summed(groups.ids) / np.maximum(groups.summed(groups.unique), 1)
    for unit, values, edges, scale in (
        ("ms", groups.total, SECONDS, 1e3),
        ("tables", groups.tables, TABLES, 1),
        ("columns, mean of ids", columns, COLUMNS, 1),
        ("ids a different row", reads, READS, 1),
    ):
        for low, high in pairwise(edges):
            words = f"{low * scale:g} or more" if np.isinf(high) else f"{low * scale:g} to below {high * scale:g}"
            yield f"{words} {unit}", (values >= low) & (values < high)
    for words, values in ((OPTIMIZERS, groups.optimizer), (DATA_TYPES, groups.data_type)):
        for i, word in enumerate(words):
            yield word, values == i


def cell(ratios: Floats) -> str:
    low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
