"""What reading takes of a core: a sample, a feature of it and an id, by format, and what transforms take of these.

    python benchmarks/reading_rates.py        # two minutes of an idle core

Table of docs/benchmarks/train.md, from which prediction/reading.py has its figures. Generated samples, read as they are
made, and of files that they were written to; one rank reads them in windows, shuffled, as training does, in a thread
beside which another one works, for both have one core and its caches. CPU time of all but that one, the least of turns.
Figures of a format are fitted to all shapes, those of a transform are its time beside the same without
it.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._process import keep_freed_memory
from recsmith.data import open_dataset, spec_from_raw
from recsmith.data.batches import BatchReader
from recsmith.data.converting import convert_dataset
from recsmith.learning.preparation import non_negative_fit
from recsmith.training import RunData
from recsmith.training.sources import open_data
from recsmith.training.sources.dataset import DatasetSource

BATCH, WINDOW, DENSE, ROWS = 1024, 16_384, 13, 100_000
DRAWN = (300_000, 20_000)  # rows of generated tables in turn: how many there are says how long an id takes to draw
SHAPES = ((1, 1), (2, 1), (8, 1), (26, 1), (6, 4), (4, 10), (8, 16), (4, 40), (16, 10))  # features, ids of each
ID_SHAPES = ((8, 1), (6, 4), (8, 16), (4, 40))  # at which transforms are measured
IDS: dict[str, dict[str, Any]] = {
    "hash": {"num_embeddings": ROWS}, "scatter": {"num_embeddings": max(DRAWN)}, "first": {"count": 3},
    "n_gram": {"length": 2, "num_embeddings": ROWS, "into": "_2"}, "map_ids": {"ids": list(range(1000))},
    "calendar": {"part": "hour"},
}  # fmt: skip
VALUES: dict[str, dict[str, Any]] = {
    "log": {}, "clip": {"least": 0.5, "most": 2.0},
    "bucketize": {"borders": [0.5, 1.0, 2.0, 4.0], "into": "_b"}, "one_hot": {"values": [1.0, 2.0], "into": "_h"},
}  # fmt: skip
Words = dict[str, Any]


def generated(features: int, ids: int, samples: int) -> Words:
    """A spec of generated samples."""
    listed = [
        {"name": f"f{at}", "num_embeddings": DRAWN[at % 2], "pooling_factor": float(ids)} for at in range(features)
    ]
    return {"format": "generator", "seed": 11, "num_samples": samples, "dense": DENSE, "features": listed}


def in_columns(train: Words, folder: str) -> Words:
    """The same samples in Parquet."""
    convert_dataset(open_dataset(spec_from_raw(train, "a benchmark")), Path(folder) / "data")
    return {"format": "parquet", "paths": [f"{folder}/data"]}


def in_lines(train: Words, folder: str) -> Words:
    """Samples of as many features in a CSV, each of one word."""
    count, names = int(train["num_samples"]), [each["name"] for each in train["features"]]
    draws = np.random.default_rng(1)
    columns = [draws.integers(0, ROWS, count).astype(str) for _ in names]
    columns += [np.char.mod("%.3f", draws.random(count)) for _ in range(DENSE)]
    columns.append(draws.integers(0, 2, count).astype(str))
    dense = [f"d{at}" for at in range(DENSE)]
    lines = [",".join([*names, *dense, "label"]), *(",".join(row) for row in zip(*columns, strict=True))]
    (Path(folder) / "data.csv").write_text("\n".join(lines) + "\n")
    listed = [{"name": name, "num_embeddings": ROWS} for name in names]
    return {"format": "text", "paths": [f"{folder}/data.csv"], "features": listed, "dense": dense, "labels": ["label"]}


def in_clicks(train: Words, folder: str) -> Words:
    """Lines as Criteo published them: 13 counts and 26 words."""
    draws = np.random.default_rng(1)
    counts, words = draws.integers(0, 100, (int(train["num_samples"]), 13)), draws.integers(0, 2**32, (WINDOW, 26))
    categories = ["\t".join(f"{each:08x}" for each in row) for row in words.tolist()]
    lines = (f"{at % 2}\t" + "\t".join(map(str, row)) + "\t" + categories[at % WINDOW]
             for at, row in enumerate(counts.tolist()))  # fmt: skip
    (Path(folder) / "day_0").write_text("\n".join(lines) + "\n")
    return {"format": "criteo", "paths": [f"{folder}/day_0"], "max_rows": ROWS}


def read_s(train: Words, samples: int, turns: int) -> float:
    """CPU seconds of a sample that a rank reads, the least of turns."""
    dataset = open_data(train, "a benchmark")
    source = DatasetSource(dataset, RunData(train=train, batch_size=BATCH, window=WINDOW), seed=1)
    start = source.beginning(dataset, 0)
    took: list[float] = []
    for _ in range(turns):
        reader = BatchReader(dataset.source, dataset.order(start), start, 0, 1, BATCH)
        seconds, read = beside_work(reader)
        assert read > samples // 2
        took.append(seconds / read)
    return min(took)


def beside_work(reader: BatchReader) -> tuple[float, int]:
    """(CPU seconds of reading, samples) of all batches of a reader, in a thread beside one that trains."""
    read: list[int] = []
    thread = threading.Thread(target=lambda: read.extend(len(batch) for batch, _, _ in reader.steps(True)))
    left, right, rows = (np.ones((size, 512), np.float32) for size in (1024, 512, 8192))
    begun = time.process_time() - time.thread_time()
    thread.start()
    while thread.is_alive():
        rows += (left @ right)[0]
    thread.join()
    return time.process_time() - time.thread_time() - begun, sum(read)


def samples_of(features: int, ids: int) -> int:
    """Samples that are read at a shape: whole windows, of fewer ids where there are many."""
    return WINDOW * (4 if features * ids < 50 else 2)


def show_formats(shapes: tuple[tuple[int, int], ...], turns: int) -> None:
    """Microseconds of a sample, of a feature of it and of an id."""
    print("| format | a sample | a feature of it | an id | farthest off |\n|---|---|---|---|---|")
    made_by = {"generator": None, "parquet": in_columns, "text": in_lines, "criteo": in_clicks}
    for name, made in made_by.items():
        words = [shape for shape in shapes if shape[1] == 1]  # of one word a feature
        some = {"text": words, "criteo": [(26, 1)]}.get(name, shapes)
        took: list[float] = []
        for shape in some:
            with tempfile.TemporaryDirectory() as folder:
                train = generated(*shape, samples_of(*shape))
                took.append(read_s(made(train, folder) if made else train, train["num_samples"], turns))
        work = np.array([[1.0, features, features * ids] for features, ids in some])
        if name in ("text", "criteo"):  # what an id takes is in what its feature takes
            work[:, 2] = 0.0
        if name == "criteo":
            work[:, 0] = 0.0
        seconds = np.array(took)
        found = non_negative_fit(work / seconds[:, None], np.ones(len(some)))
        off = work @ found / seconds - 1
        told = " | ".join(f"{each * 1e6:.3f} us" for each in found)
        print(f"| {name} | {told} | {off[np.abs(off).argmax()]:+.0%} |", flush=True)


def show_transforms(shapes: tuple[tuple[int, int], ...], turns: int) -> None:
    """Microseconds that a transform adds to an id that it reads, and to a value."""
    print("\n| transform | of a feature | of an id | farthest off, of a sample |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        plain: dict[tuple[int, int], tuple[Words, float]] = {}
        for shape in shapes:
            path = Path(folder) / f"{shape[0]}x{shape[1]}"
            path.mkdir()
            train = in_columns(generated(*shape, samples_of(*shape)), str(path))
            plain[shape] = train, read_s(train, samples_of(*shape), turns)
        for name, words in IDS.items():
            took: list[float] = []
            for (features, ids), (train, alone) in plain.items():
                listed = [written({"op": name, "feature": f"f{at}", **words}, at) for at in range(features)]
                whole = read_s({**train, "transforms": listed}, samples_of(features, ids), turns)
                took.append(whole - alone)
            work = np.array([[features, features * ids] for features, ids in shapes], np.float64)
            seconds, wholes = np.array(took), np.array([alone for _, alone in plain.values()])
            found = non_negative_fit(work / wholes[:, None], seconds / wholes)
            off = (work @ found - seconds) / (wholes + seconds)
            told = " | ".join(f"{each * 1e6:.3f} us" for each in found)
            print(f"| {name} | {told} | {off[np.abs(off).argmax()]:+.0%} |", flush=True)
        train, alone = plain[shapes[0]]
        for name, words in VALUES.items():
            listed = [written({"op": name, "dense": f"dense_{at}", **words}, at) for at in range(DENSE)]
            added = read_s({**train, "transforms": listed}, samples_of(*shapes[0]), turns) - alone
            print(f"| {name} | {max(added, 0.0) / DENSE * 1e6:.3f} us | | |", flush=True)


def written(transform: Words, number: int) -> Words:
    """A transform that writes under a name of its own, where it is to write elsewhere."""
    return {**transform, "into": f"{transform['into']}_{number}"} if "into" in transform else transform


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one turn of two shapes")
    chosen = parser.parse_args()
    keep_freed_memory()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    turns = 1 if chosen.quick else chosen.turns
    show_formats(SHAPES[:2] if chosen.quick else SHAPES, turns)
    show_transforms(ID_SHAPES[:1] if chosen.quick else ID_SHAPES, turns)


if __name__ == "__main__":
    main()
