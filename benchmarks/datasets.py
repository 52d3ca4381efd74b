"""What the layout of a dataset brings: columns beside maps, merged reads, popular columns first, clustered sessions.

    python benchmarks/datasets.py -o datasets.jsonl           # all tables of docs/datasets.md, about 10 minutes
    python benchmarks/datasets.py --quick                     # the same, small

Reading is measured in CPU seconds, the two layouts in turns in one process, as the median ratio of the rounds. Reads
and bytes are counted where pyarrow asks the file for them. Popularity is counted over other jobs than those that read.
With -o, rows that the file holds are not measured again.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from records import Key, Row, resumed

from recsmith.data import (
    ColumnFeature,
    GeneratedFeature,
    GeneratorSpec,
    ParquetSpec,
    SessionSpec,
    open_dataset,
    spec_to_raw,
)
from recsmith.data.arrow import pyarrow
from recsmith.data.converting import FileLayout, cluster_dataset, convert_dataset
from recsmith.data.dataset import Dataset
from recsmith.data.parquet.arrow import coalescing
from recsmith.data.source import MemorySource
from recsmith.files import dump_json

SHARE = 0.1  # of the features, which a job reads: as the DSI paper says of Meta's jobs
GAP = 2**20  # bytes between columns that a merged read passes over: as the DSI paper has it
ROUNDS = 5
JOBS, PAST_JOBS = 20, 100  # that read, and over which popularity is counted
STEEP = 1.0  # Zipf exponent by which jobs choose features
MIB = 2**20
# Its own peak: what getrusage says of a process begins with what its parent held.
CHILD = """import time
from recsmith.cli import main
try:
    main()
finally:
    print(time.process_time(), next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="What the layout of a dataset brings.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", metavar="FILE.jsonl")
    words = parser.parse_args()
    features, samples, many = (50, 4_096, 65_536) if words.quick else (200, 32_768, 1_048_576)
    keys: list[Key] = [
        ("maps", features, samples),
        *(("reads", features, max(rows, 4096), rows) for rows in (512, 1024, 2048, 8192, samples)),
    ]
    keys += [("storage", size, many // 16) for size in (1, 2, 4, 8, 16)]
    keys += [("cluster", count, 128) for count in (many // 4, many, 4 * many)]
    for row in resumed(measured, keys, words.output, jobs=1):
        print(row, flush=True)


def measured(key: Key) -> Row:
    kind, *sizes = key
    with tempfile.TemporaryDirectory() as folder:
        return {"maps": maps, "reads": reads, "storage": storage, "cluster": clustering}[kind](Path(folder), *sizes)


def wide(features: int, samples: int) -> GeneratorSpec:
    """Many features of some ids each, as logs have them."""
    made = [
        GeneratedFeature(name=f"f{at}", num_embeddings=100_000, pooling_factor=10.0, lengths="poisson")
        for at in range(features)
    ]
    return GeneratorSpec(num_samples=samples, features=tuple(made))


def chosen_features(features: int, seed: int) -> list[str]:
    """The features that a job reads: popular ones more often; which are popular is drawn at random."""
    weights = np.random.default_rng(0).permutation(1.0 / np.arange(1, features + 1) ** STEEP)
    drawn = np.random.default_rng(seed).choice(
        features, size=round(features * SHARE), replace=False, p=weights / weights.sum()
    )
    return [f"f{at}" for at in sorted(drawn.tolist())]


def maps(folder: Path, features: int, samples: int) -> Row:
    """Samples a CPU second of a tenth of the features, of columns and of one column of maps."""
    convert_dataset(open_dataset(wide(features, samples)), folder / "columns", FileLayout(group_samples=4096))
    as_maps(folder / "columns", folder / "maps", features)
    wanted = chosen_features(features, 1)
    described = {
        kind: ParquetSpec(
            paths=(str(folder / kind),),
            features=tuple(
                ColumnFeature(name=name, num_embeddings=100_000, column="ids", key=name)
                if kind == "maps"
                else ColumnFeature(name=name, num_embeddings=100_000)
                for name in wanted
            ),
            labels=("label",),
        )
        for kind in ("columns", "maps")
    }
    spent: dict[str, list[float]] = {kind: [] for kind in described}
    for _ in range(ROUNDS):
        for kind, spec in described.items():
            spent[kind].append(passed(open_dataset(spec), samples))
    ratios = [one / other for one, other in zip(spent["maps"], spent["columns"], strict=True)]
    return {
        "samples/s": {kind: round(samples / statistics.median(each)) for kind, each in spent.items()},
        "ratio": round(statistics.median(ratios), 2),
        "bytes": {kind: sum(path.stat().st_size for path in (folder / kind).glob("*.parquet")) for kind in described},
    }


def as_maps(columns: Path, folder: Path, features: int) -> None:
    """The same samples with all features in one column of maps, in row groups of the same rows."""
    arrow = pyarrow()
    folder.mkdir()
    for path in sorted(columns.glob("part-*")):
        file = arrow.parquet.ParquetFile(path)
        writer = None
        for part in range(file.num_row_groups):
            table = file.read_row_group(part)
            made = arrow.table({"label": table["label"], "ids": map_column(table, features)})
            writer = writer or arrow.parquet.ParquetWriter(
                folder / path.name, made.schema, compression="zstd", use_dictionary=["label", "ids.key_value.key"]
            )
            writer.write_table(made)
        assert writer is not None
        writer.close()


def map_column(table: Any, features: int) -> Any:
    """A map of all features for each row: name to ids."""
    arrow = pyarrow()
    rows = table.num_rows
    lists = arrow.concat_arrays([table[f"f{at}"].combine_chunks() for at in range(features)])
    order = (np.arange(features)[None, :] * rows + np.arange(rows)[:, None]).ravel()  # row by row
    names = arrow.DictionaryArray.from_arrays(np.tile(np.arange(features), rows), [f"f{at}" for at in range(features)])
    offsets = np.arange(rows + 1, dtype=np.int32) * features
    return arrow.MapArray.from_arrays(offsets, names.cast(arrow.string()), lists.take(arrow.array(order)))


def passed(dataset: Dataset, samples: int) -> float:
    """CPU seconds of a pass of one rank."""
    begun = time.process_time()
    with dataset.batches(rank=0, world_size=1, batch_size=1024, seed=0, shuffle=False) as batches:
        assert sum(len(batch) for batch in batches) == samples
    return time.process_time() - begun


def reads(folder: Path, features: int, samples: int, rows: int) -> Row:
    """Reads of a row group, and MiB that nobody wanted: column by column, merged, merged with popular columns first."""
    source = open_dataset(wide(features, samples))
    past = [name for job in range(PAST_JOBS) for name in chosen_features(features, 1000 + job)]
    popular = sorted({*past}, key=lambda name: -past.count(name))
    layouts = {
        "in order": FileLayout(group_samples=rows),
        "popular": FileLayout(group_samples=rows, popular=tuple(popular)),
    }
    for kind, layout in layouts.items():
        convert_dataset(source, folder / kind, layout)
    row: Row = {}
    for kind, gap in (("in order", 0), ("in order", GAP), ("popular", GAP)):
        counts = [
            counted(folder / kind / "part-00000.parquet", chosen_features(features, job), gap) for job in range(JOBS)
        ]
        row[f"{kind}, gap {gap:,}"] = {
            name: round(statistics.mean(each[name] for each in counts), 3)
            for name in ("reads", "wanted", "passed over")
        }
    merged, popular_first = row[f"in order, gap {GAP:,}"], row[f"popular, gap {GAP:,}"]
    row["fewer reads"] = round(row["in order, gap 0"]["reads"] / merged["reads"], 2)
    row["fewer reads, popular"] = round(row["in order, gap 0"]["reads"] / popular_first["reads"], 2)
    row["less passed over"] = round(1 - popular_first["passed over"] / max(merged["passed over"], 1e-9), 3)
    return row


class CountingFile:
    """A file that counts what is read of it."""

    def __init__(self, path: Path) -> None:
        self.file, self.reads, self.bytes = path.open("rb"), 0, 0

    def read(self, size: int = -1) -> bytes:
        """Read and count."""
        found = self.file.read(size)
        self.reads, self.bytes = self.reads + 1, self.bytes + len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def counted(path: Path, columns: list[str], gap: int) -> dict[str, float]:
    """Reads and bytes of the row groups of a file, and those of the bytes that are of no wanted column; MiB."""
    file = CountingFile(path)
    fragment = coalescing(pyarrow().PythonFile(file, "r"), gap)
    fragment.ensure_complete_metadata()
    before_reads, before_bytes = file.reads, file.bytes
    for part in range(fragment.num_row_groups):  # one at a time, as the reader does
        assert fragment.subset(row_group_ids=[part]).to_table(columns=columns, use_threads=False).num_rows
    metadata = fragment.metadata
    wanted = 0
    for part in range(metadata.num_row_groups):
        group = metadata.row_group(part)
        chunks = [group.column(at) for at in range(group.num_columns)]
        wanted += sum(each.total_compressed_size for each in chunks if each.path_in_schema.split(".")[0] in columns)
    read = file.bytes - before_bytes
    parts = metadata.num_row_groups
    return {
        "reads": (file.reads - before_reads) / parts,
        "wanted": wanted / MIB / parts,
        "passed over": (read - wanted) / MIB / parts,
    }


def sessions_of(size: int, samples: int) -> GeneratorSpec:
    """Twelve features of the user, whose bags repeat within a session, and four of items, which do not."""
    users = [GeneratedFeature(name=f"user_{at}", num_embeddings=200_000, pooling_factor=20.0) for at in range(12)]
    items = [GeneratedFeature(name=f"item_{at}", num_embeddings=200_000, duplication=0.0) for at in range(4)]
    return GeneratorSpec(
        num_samples=samples, features=(*users, *items), sessions=SessionSpec(size=size, duplication=0.95)
    )


def storage(folder: Path, size: int, samples: int) -> Row:
    """Bytes of samples in random order, and of the same samples clustered by session."""
    spec = sessions_of(size, samples)
    whole = next(open_dataset(spec).batches(rank=0, world_size=1, batch_size=samples, seed=0, shuffle=False))
    order = np.random.default_rng(0).permutation(samples)
    numbers = whole.sample_ids[order]
    shuffled = Dataset(MemorySource(spec.schema, whole.take(order), {"session_id": numbers // size}))
    convert_dataset(shuffled, folder / "shuffled")
    cluster_dataset(open_dataset(folder / "shuffled"), folder / "clustered")
    sizes = {kind: bytes_of(folder / kind) for kind in ("shuffled", "clustered")}
    return {"bytes": sizes, "ratio": round(sizes["shuffled"] / sizes["clustered"], 2)}


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("part-*"))


def clustering(folder: Path, samples: int, memory: int) -> Row:
    """CPU seconds and peak memory of `recsmith data cluster` in a process of its own. memory: MiB."""
    bags = tuple(GeneratedFeature(name=f"f{at}", num_embeddings=100_000, pooling_factor=4.0) for at in range(8))
    user = GeneratedFeature(name="user", num_embeddings=1_000_000, zipf=0.0)
    spec = GeneratorSpec(num_samples=samples, features=(user, *bags), sessions=SessionSpec(size=16, duplication=0.95))
    (folder / "spec.json").write_text(dump_json(spec_to_raw(spec)))
    words = [sys.executable, "-c", CHILD, "data", "cluster", str(folder / "spec.json"), "-o", str(folder / "out")]
    done = subprocess.run([*words, "--session", "user", "--memory", f"{memory}MiB"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    spent, peak = done.stdout.split()[-2:]
    return {
        "samples/s": round(samples / float(spent)),
        "peak MiB": round(int(peak) / 1024),
        "files": len(list((folder / "out").glob("part-*"))),
        "bytes": bytes_of(folder / "out"),
    }


if __name__ == "__main__":
    main()
