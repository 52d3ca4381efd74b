"""Measuring on this machine's CPU: is it right, how fast, how noisy? The tables of docs/measuring.md.

    python benchmarks/measuring.py --budget 60s

1. FBGEMM beside torch.nn.EmbeddingBag on 60 small cases, outputs and updated weights.
2. A trial run into a temporary folder: samples an hour, discarded samples, and what two visits of a case differ by.
3. The same run's seconds beside the words by which cases are drawn: how the time of a row depends on its kind.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from recsmith.hardware import SCALES, load_hardware
from recsmith.measuring.cases import DATA_TYPES, OPTIMIZERS, Cases
from recsmith.measuring.check import check
from recsmith.measuring.parts import read_columns
from recsmith.measuring.run import Limit, measure_compute
from recsmith.measuring.show import summary_lines
from recsmith.units import parse_time


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
        print(f"\n{done.samples} samples in {done.elapsed_s:.0f} s: {done.per_hour:,.0f} an hour\n")
        print("\n".join(summary_lines(folder)))
        print_rows(folder)


def print_rows(folder: Path) -> None:
    """Median time of a row of 64 columns by optimizer and data type, steady or not."""
    names = ["optimizer", "data_type", "dim", "lookups", "batch_size", "forward_s", "backward_s"]
    found = read_columns(folder, names)
    taken: dict[tuple[str, str], list[float]] = {}
    for optimizer, data_type, dims, lookups, bags, forward, backward in zip(*found.values(), strict=True):
        rows = sum((count + bags) * (1 + dim / 64) / 2 for dim, count in zip(dims, lookups, strict=True))
        if forward is not None and rows > 1000:
            taken.setdefault((optimizer, data_type), []).append((forward + backward) / rows)
    print("\n| optimizer | weights | samples | a row of 64 columns, forward and backward |\n|---|---|---|---|")
    for optimizer in OPTIMIZERS:
        for data_type in DATA_TYPES:
            seconds = taken.get((optimizer, data_type), [])
            if seconds:
                print(f"| {optimizer} | {data_type} | {len(seconds)} | {statistics.median(seconds) * 1e9:.0f} ns |")


if __name__ == "__main__":
    main()
