"""What rows that a cache lacks take of a lookup, from a file that the operating system has in memory.

    python benchmarks/fetch_rates.py                 # nine shapes of tables in files, 40 batches each; a minute
    python benchmarks/fetch_rates.py --batches 12

The figures of training/systems/tiers/price.py, seconds of a table, of an id and of a lookup whose row a cache lacks,
lie between what two runs found by least squares of relative errors over the odd shapes. The table shows all shapes. The
time of a shape is the least of its batches after the cache is full, by the clock, on one core.
"""

import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode

from recsmith.learning.preparation import non_negative_fit
from recsmith.training.systems.tiers.price import fetch_s
from recsmith.training.systems.tiers.tables import TieredTables


@dataclass(frozen=True)
class Shape:
    """Tables of a rank: how many, rows, columns, ids of a batch each, share in memory, exponent of the law of reads."""

    tables: int
    rows: int
    columns: int
    ids: int
    share: float
    zipf: float = 0.0


SHAPES = (
    Shape(3, 300_000, 64, 40_960, 0.35), Shape(3, 300_000, 64, 40_960, 0.35, 1.2), Shape(3, 300_000, 64, 20_480, 0.6),
    Shape(2, 2_000_000, 64, 2_048, 0.15), Shape(2, 2_000_000, 64, 2_048, 0.15, 1.05), Shape(6, 100_000, 16, 512, 0.1),
    Shape(6, 100_000, 16, 2_048, 0.1), Shape(26, 100_000, 16, 512, 0.1), Shape(2, 500_000, 128, 10_240, 0.1),
)  # fmt: skip


def measured(shape: Shape, batches: int, folder: str) -> tuple[float, float]:
    """(least seconds of a batch, lookups of it whose row was not in memory) of a shape."""
    count, size = shape.tables, shape.ids
    tables = TieredTables(
        names=[f"t{each}" for each in range(count)], rows=[shape.rows] * count, columns=[shape.columns] * count,
        caches=[shape.share] * count, folder=folder, profiles=[0] * count, feature_table_map=list(range(count)),
        pooling_mode=PoolingMode.SUM, weights_precision=SparseType.FP32, device=torch.device("cpu"),
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    )  # fmt: skip
    for stored in tables._rows:
        for part in stored.home:
            part.fill_(0.5)
    drawn, offsets = np.random.default_rng(0), torch.arange(0, count * size + 1, size)
    chances = np.cumsum(np.arange(1, shape.rows + 1) ** -shape.zipf)
    where, found = drawn.permutation(shape.rows), list[tuple[float, float]]()
    for _ in range(batches):
        ids = where[np.searchsorted(chances, drawn.random(count * size) * chances[-1])]
        before, begun = tables.missed, time.perf_counter()
        fetched = tables._fetch(torch.from_numpy(ids), offsets, [tables._training], counted=True)
        found.append((time.perf_counter() - begun, float(tables.missed - before)))
        tables._training = fetched.held
        for cache, slots in zip(tables.caches, fetched.held, strict=True):
            cache.changed[slots] = True
    return min(found[batches // 2 :])


def main() -> None:
    """The table, and the figures that fit it best."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="the first so many")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    took: list[float] = []
    parts: list[tuple[float, float, float]] = []
    print("| tables | rows | columns | ids of each | in memory | zipf | lookups without | predicted | measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape in SHAPES[: chosen.shapes]:
        with tempfile.TemporaryDirectory() as folder:
            seconds, missed = measured(shape, chosen.batches, folder)
        ids = float(shape.tables * shape.ids)
        took.append(seconds)
        parts.append((float(shape.tables), ids, missed))
        print(f"| {shape.tables} | {shape.rows:,} | {shape.columns} | {shape.ids:,} | {shape.share:.0%} "
              f"| {shape.zipf:g} | {missed / ids:.1%} | {fetch_s(shape.tables, ids, missed) * 1e3:.1f} ms "
              f"| {seconds * 1e3:.1f} ms |", flush=True)  # fmt: skip
    fit, seconds = np.array(parts)[::2], np.array(took)[::2]
    best = non_negative_fit(fit / seconds[:, None], np.ones(len(seconds)))
    print(f"\nfrom the odd ones: {best[0]:.1e} s a table, {best[1]:.1e} s an id, {best[2]:.1e} s a row that is fetched")


if __name__ == "__main__":
    main()
