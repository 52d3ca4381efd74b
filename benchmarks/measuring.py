"""Measuring on this machine's CPU: is it right, how fast, how noisy? The tables of docs/measurements.md.

    python benchmarks/measuring.py --budget 60s

1. FBGEMM beside torch.nn.EmbeddingBag on 60 small cases, outputs and updated weights.
2. A trial run into a temporary folder: samples an hour, unsteady ones, and what two samples of a case differ by.
3. The same run's seconds beside the words by which cases are drawn: how the time of a row depends on its kind.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from recsmith.hardware import SCALES, load_hardware
from recsmith.measuring.cases import DATA_TYPES, Cases
from recsmith.measuring.compute import measure_compute
from recsmith.measuring.correctness import check
from recsmith.measuring.folder import Limit
from recsmith.measuring.samples import read_samples
from recsmith.reports.measurements import summary_lines
from recsmith.units import parse_time
from recsmith.workloads.optimizers import CPU_OPTIMIZERS


def main() -> None:
    parser = argparse.ArgumentParser(description="Check and try measuring on this CPU.")
    parser.add_argument("--budget", default="60s", help="of the trial run")
    options = parser.parse_args()
    print("| optimizer | weights | cases | outputs differ by | updated weights by |\n|---|---|---|---|---|")
    for each in check("cpu"):
        print(f"| {each.optimizer} | {each.data_type} | {each.cases} | {each.outputs:.1e} | {each.weights:.1e} |")
    with tempfile.TemporaryDirectory() as name:
        hardware = load_hardware("cpu")
        folder = Path(name) / "cpu"
        done = measure_compute(
            hardware, Cases(seed=0, scale=SCALES["cpu"]), folder, Limit(budget_s=parse_time(options.budget))
        )
        print(
            f"\n{done.samples} samples, {done.visits} visits in {done.elapsed_s:.0f} s: {done.per_hour:,.0f} an hour\n"
        )
        print("\n".join(summary_lines(folder)))
        print_rows(folder)


def print_rows(folder: Path) -> None:
    """Median time of a row of 64 columns by optimizer and data type, of steady samples."""
    found = read_samples(folder)
    work = (found.lookups + found.batch_size[found.owner]) * (1 + found.dim / 64) / 2
    rows = np.bincount(found.owner, work, len(found))
    row_s = (found.forward_s + found.backward_s) / rows
    print("\n| optimizer | weights | samples | a row of 64 columns, forward and backward |\n|---|---|---|---|")
    for optimizer in CPU_OPTIMIZERS:
        for data_type in DATA_TYPES:
            seconds = row_s[(found.optimizer == optimizer) & (found.data_type == data_type) & (rows > 1000)]
            if len(seconds):
                print(f"| {optimizer} | {data_type} | {len(seconds)} | {np.median(seconds) * 1e9:.0f} ns |")


if __name__ == "__main__":
    main()
