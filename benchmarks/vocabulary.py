"""How fast and in how much memory a vocabulary of distinct texts is made, beside pyarrow's own read of the column.

    python benchmarks/vocabulary.py                       10 million texts that are all different
    python benchmarks/vocabulary.py --values 100000000    figures of docs/vocabularies.md; 15 GB of disk
    python benchmarks/vocabulary.py --zipf 1.1            texts that repeat by Zipf's law
    python benchmarks/vocabulary.py --lookups             then looks values up, a block of 131,072 at a time

Each row is a process of its own, whose seconds and peak memory are its own. Files of pages that were read count in that
peak where they are mapped, which runs are not.
"""

import argparse
import importlib
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GROUP, BLOCK = 2**20, 2**17


def write(path: Path, values: int, zipf: float) -> None:
    """A Parquet file of texts such as `item-00af3c-7`, in drawn order."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    compute: Any = importlib.import_module("pyarrow.compute")
    draw = np.random.default_rng(0)
    with parquet.ParquetWriter(path, pa.schema([("item", pa.string()), ("clicked", pa.int8())])) as writer:
        for first in range(0, values, GROUP):
            count = min(GROUP, values - first)
            ids = draw.zipf(zipf, count) % 2**40 if zipf else (np.arange(first, first + count) * 0x9E3779B1) % 2**40
            texts = compute.binary_join_element_wise("item", pa.array(ids).cast(pa.string()), "v7", "-")
            writer.write_table(pa.table({"item": texts, "clicked": np.zeros(count, np.int8)}))


def measure(what: str, folder: Path, memory: int) -> None:
    """Print one row: values a second, seconds, peak memory."""
    from recsmith.data import ColumnFeature, ParquetSpec
    from recsmith.data.counted_vocabularies import make_vocabularies
    from recsmith.data.parquet.source import ParquetSource
    from recsmith.data.vocabularies.settings import VocabularySpec
    from recsmith.data.vocabularies.vocabulary import Vocabulary

    feature = ColumnFeature(name="item", vocabulary=str(folder / "made" / "item.arrow"))
    spec = ParquetSpec(paths=(str(folder / "items.parquet"),), features=(feature,), labels=("clicked",))
    begun, cpu = time.perf_counter(), time.process_time()
    if what == "read by pyarrow":
        count = sum(table.num_rows for table, _ in ParquetSource.tables(spec, ["item"]))
    elif what == "vocabulary":
        count = make_vocabularies([spec], folder / "made", memory=memory)[0].counted
    else:
        vocabulary = Vocabulary(VocabularySpec(path=str(folder / "made" / "item.arrow")))
        opened = time.perf_counter() - begun
        print(f"| opened in {opened:.2f} s |", flush=True)
        begun, cpu, count = time.perf_counter(), time.process_time(), 0
        for table, _ in ParquetSource.tables(spec, ["item"]):
            for at in range(0, table.num_rows, BLOCK):
                part = table["item"].slice(at, BLOCK).combine_chunks()
                assert int(vocabulary.rows(part).min()) >= 1
                count += len(part)
            if count >= 32 * BLOCK:
                break
    spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"| {what} | {count:,} | {count / spent:,.0f} | {spent:.1f} | {cpu:.1f} | {peak:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument("--zipf", type=float, default=0.0)
    parser.add_argument("--memory", type=int, default=2**30, help="bytes that counting may take")
    parser.add_argument("--lookups", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    if given.part:
        measure(given.part, given.folder, given.memory)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        write(Path(folder) / "items.parquet", given.values, given.zipf)
        print("| what | values | values/s | seconds | CPU seconds | peak MiB |\n|---|---|---|---|---|---|", flush=True)
        for part in ("read by pyarrow", "vocabulary", *(["lookups"] if given.lookups else [])):
            words = ["--part", part, "--folder", folder, "--memory", str(given.memory)]
            subprocess.run([sys.executable, __file__, *words], check=True)
        size = (Path(folder) / "made" / "item.arrow").stat().st_size
        print(f"file: {size / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
