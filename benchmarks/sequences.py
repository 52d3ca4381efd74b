"""Kernels of sequence tables (pooling: none) on a CPU core: measured, fitted, and judged on shapes that were held apart.

    python benchmarks/sequences.py measure samples/sequences-cpu.jsonl --seconds 600
    python benchmarks/sequences.py fit samples/sequences-cpu.jsonl           # docs/benchmarks/loads.md
    python benchmarks/sequences.py fit samples/sequences-cpu.jsonl --write   # ... into the card of neural:cpu

Shapes are drawn evenly in the logarithm of rows, columns, ids and tables; a tenth of them are pooled ones, whose
measured seconds over those of neural:cpu are this machine's factor. Sequences' seconds are divided by it. Shapes of odd
numbers fit, those of even numbers judge: a shape has tables of its own.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith import AccessProfile, Feature, Table, Workload, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.hardware import Case, load_hardware, scale_of
from recsmith.hardware.case import CASES, KeyedRandom
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

SEED = 3
MOST_IDS, MOST_OUTPUTS, MOST_ELEMENTS = 2**18, 2**24, 2**26
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
        Table(name=f"t{i}", num_embeddings=max(int(rows[i]), 1), embedding_dim=dim, pooling=pooling, data_type=data_type,
              features=(Feature(name=f"t{i}", pooling_factor=max(length * float(skew[i]) / skew.mean(), 0.01)),),
              access=AccessProfile(zipf=round(float(zipf[i]), 3)))
        for i in range(count)
    )  # fmt: skip
    return Case(
        seed=seed, number=number, workload=Workload(batch_size=batch, optimizer=optimizer, tables=tables)
    )


def measure(path: Path, seconds: float) -> None:
    """Appends measured shapes until the time is over."""
    known = [json.loads(line)["number"] for line in path.read_text().splitlines()] if path.exists() else []
    scale = replace(scale_of("cpu"), name="sequences", elements=MOST_ELEMENTS + 4096, outputs=MOST_OUTPUTS * 2)
    hardware = load_hardware("cpu", scale)
    number, begun = 1 + max(known, default=-1), time.monotonic()
    with path.open("a") as file:
        while time.monotonic() < begun + seconds:
            found = hardware.measure(case_of(number))
            row = {"number": number, "status": found.status, "forward_s": found.forward_s, "spread": found.spread,
                   "backward_s": found.backward_s, "probe_s": found.probe_s, "probe_moved": found.probe_moved,
                   "unique_rows": found.unique_rows, "message": found.message}  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
            number += 1
    print(f"{number} shapes on {hardware.device}, {hardware.versions}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "fit"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    measure(given.rows, given.seconds)
