"""How fast data is read and generated on one core, and how much memory that takes; tables for docs/data.md.

    python benchmarks/data.py                    generator, Parquet, Criteo's lines (plain and .gz)
    python benchmarks/data.py --samples 2000000  more samples: memory stays, seconds grow
    python benchmarks/data.py --zipf             unique rows of generated ids, and by the law
    python benchmarks/data.py --ranks            how often the ranks of a world read a block

Every row is a process of its own, whose CPU seconds and peak memory are its own.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BATCH = 4096
READS = ("generator", "parquet", "criteo", "criteo-gz", "sessions")


def spec_of(read: str, samples: int):
    """Ten features of 10^2 to 10^6 rows and 13 dense columns; 26 features where Criteo's lines need them."""
    from recsmith.data import GeneratedFeature, GeneratorSpec, SessionSpec

    count = 10 if read in ("generator", "sessions") else 26
    features = tuple(GeneratedFeature(name=f"f{at}", num_embeddings=10 ** (2 + at % 10 // 2)) for at in range(count))
    sessions = SessionSpec(size=16, duplication=0.95) if read == "sessions" else SessionSpec()
    return GeneratorSpec(num_samples=samples, features=features, dense=13, sessions=sessions)


def write(read: str, samples: int, folder: Path) -> None:
    from recsmith.data import open_dataset, write_dataset

    form = "parquet" if read == "parquet" else "criteo"
    write_dataset(open_dataset(spec_of(read, samples)), folder / read, form, packed=read == "criteo-gz")


def measure(read: str, samples: int, folder: Path) -> None:
    """Print one row of the table: samples a CPU second of a rank alone, and the peak memory of the process."""
    from recsmith.data import open_dataset

    dataset = open_dataset(spec_of(read, samples) if read in ("generator", "sessions") else folder / read)
    begun = time.process_time()
    dataset.source.sizes()
    counted = time.process_time() - begun
    begun = time.process_time()
    with dataset.batches(rank=0, world_size=1, batch_size=BATCH, seed=0) as batches:
        read_samples = sum(len(batch) for batch in batches)
    spent = time.process_time() - begun
    assert read_samples == samples
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {read} | {samples:,} | {samples / spent:,.0f} | {counted:.2f} | {peak:.0f} |", flush=True)


def zipf() -> None:
    """Unique rows a lookup of every fourth table of the shared pool: in a block of generated ids, and by the law."""
    import numpy as np

    from recsmith.data import generator_like, open_dataset
    from recsmith.workloads.sample import shared_pool
    from recsmith.workloads.zipf import zipf_unique_rows

    pool, found, expected, lookups = shared_pool(), 0, 0.0, 0
    for table in pool.tables[::4]:
        dataset = open_dataset(generator_like(replace(pool, tables=(table,)), num_samples=BATCH, dense=0))
        ids = dataset.source.read(0).samples.ids[table.features[0].name].values
        found, lookups = found + len(np.unique(ids)), lookups + len(ids)
        exponent = table.access.zipf if table.access and table.access.zipf else 0.0
        law = [np.array([float(each)]) for each in (exponent, table.num_embeddings, len(ids))]
        expected += float(zipf_unique_rows(*law)[0]) if len(ids) else 0.0
    print(
        f"{lookups:,} ids; unique rows a lookup: {found / lookups:.4f} generated, {expected / lookups:.4f} by the law"
    )


def ranks() -> None:
    """How often the ranks of a world read each block, together, of data of 64 blocks."""
    from recsmith.data import GeneratedFeature, GeneratorSpec, open_dataset
    from recsmith.data.generator.source import GeneratorSource

    reads: list[int] = []
    plain = GeneratorSource.read
    GeneratorSource.read = lambda self, block: reads.append(block) or plain(self, block)
    spec = GeneratorSpec(num_samples=64 * BATCH, features=(GeneratedFeature(name="id", num_embeddings=100),))
    for world_size in (1, 2, 4, 8, 16, 64):
        reads.clear()
        for rank in range(world_size):
            for _ in open_dataset(spec).batches(
                rank=rank, world_size=world_size, batch_size=8192 // world_size, seed=0
            ):
                pass
        print(f"{world_size} ranks read a block {len(reads) / 64:.2f} times", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=500_000)
    parser.add_argument("--reads", default=",".join(READS))
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)  # write|measure, what, where
    parser.add_argument("--zipf", action="store_true")
    parser.add_argument("--ranks", action="store_true")
    words = parser.parse_args()
    if words.ranks:
        ranks()
        return
    if words.zipf:
        zipf()
        return
    if words.step:
        what, read, folder = words.step
        (write if what == "write" else measure)(read, words.samples, Path(folder))
        return
    print(
        "| data | samples | samples a CPU second | counting lines (CPU s) | peak memory (MiB) |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for read in words.reads.split(","):
            for step in ("measure",) if read in ("generator", "sessions") else ("write", "measure"):
                subprocess.run(
                    [sys.executable, __file__, "--samples", str(words.samples), "--step", step, read, folder],
                    check=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
                )


if __name__ == "__main__":
    main()
