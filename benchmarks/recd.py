"""What deduplicated features bring: storage, reading and steps, beside plain ones in shuffled order (docs/datasets.md).

    python benchmarks/recd.py -o recd.jsonl         # twelve user features and four of items, sessions of 1 to 16
    python benchmarks/recd.py --sessions 16 --ids 20 64 --samples 20000 --steps 12 -o small.jsonl

For each length of sessions and each mean number of ids in a bag of a user feature, the generator's samples are written
twice as Parquet: session after session, and shuffled. Reading is measured over a pass of one rank in CPU seconds of the
process, as it is and with transforms (each user feature hashed, its pairs made another feature); steps in real jobs on
two ranks of this machine, as medians of a job. Kinds take turns, and what is printed are medians of the ratios of a
turn, since a machine that others use changes its pace. With -o, rows that the file holds are not measured again.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from records import Key, Row, resumed

from recsmith.data import Batch, Dataset, open_dataset, spec_from_raw
from recsmith.data.batch import concatenated
from recsmith.data.deduplication import chosen, dedup_groups
from recsmith.data.parquet.write import write_parquet
from recsmith.training import Run, RunData, RunMetrics, RunModel, train

USERS, ITEMS, ROWS, DIM = 12, 4, 200_000, 64  # features (items have one id), rows and columns of tables
READS = 22  # passes over the samples, of each kind in turns
STAYS = 0.95  # chance that a bag of a user feature is that of the sample before in its session
BATCH, GROUP = 1024, 8192  # samples of a rank and step, and of a row group
LEAST_FACTOR = 1.5  # samples for each distinct bag of features that are read as distinct bags
KINDS = ("shuffled", "clustered", "deduplicated", "forced")  # forced: all user features, whether they gain or not


def main() -> None:
    parser = argparse.ArgumentParser(description="What deduplicated features bring.")
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--ids", type=int, nargs="*", default=[20])
    parser.add_argument("--samples", type=int, default=49_152)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("-o", "--output", metavar="FILE.jsonl")
    words = parser.parse_args()
    keys: list[Key] = [
        (size, ids, words.samples, words.steps, words.rounds) for ids in words.ids for size in words.sessions
    ]
    rows = list(resumed(measured, keys, words.output, jobs=1))
    heads = "ids a bag, samples a session, factor, smaller files, less CPU to read, transformed, faster steps, forced"
    print(f"| {heads.replace(', ', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(shown(row))


def measured(key: Key) -> Row:
    """Everything about sessions of one length."""
    size, ids, samples, steps, rounds = key
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_from_raw(generated(size, ids, samples), "the generator")
        files = {kind: Path(folder) / kind for kind in ("clustered", "shuffled")}
        write(open_dataset(spec), files, size)
        with open_dataset(files["clustered"]).batches(
            rank=0, world_size=1, batch_size=BATCH, seed=0, together=size
        ) as batches:
            groups = chosen(dedup_groups(next(batches)), LEAST_FACTOR)
        runs = {kind: a_run(Path(folder), files, kind, size, steps) for kind in KINDS}
        read: dict[str, list[float]] = {kind: [] for kind in KINDS}
        changed: dict[str, list[float]] = {kind: [] for kind in KINDS}
        step: dict[str, list[float]] = {kind: [] for kind in KINDS}
        chosen_groups = [list(group.features) for group in groups]
        for _, kind in itertools.product(range(READS), KINDS):
            read[kind].append(reading(runs[kind], chosen_groups))
            changed[kind].append(reading(runs[kind], chosen_groups, transforms=True))
        for number, kind in itertools.product(range(rounds), KINDS):
            step[kind].append(statistics.median(stepping(runs[kind], f"{folder}/{kind}-{number}")))
        return {
            "size": size,
            "ids": ids,
            "factor": min((group.factor for group in groups), default=1.0),
            "chosen": sum(len(group.features) for group in groups),
            "bytes": {kind: sum(file.stat().st_size for file in each.iterdir()) for kind, each in files.items()},
            "read_cpu_s": read,
            "changed_cpu_s": changed,
            "step_s": step,
        }


def generated(size: int, ids: int, samples: int) -> dict[str, Any]:
    users = [{"name": f"user_{i}", "duplication": STAYS} for i in range(USERS)]
    single = {"pooling_factor": 1, "lengths": "fixed"}
    items = [{"name": f"item_{i}", "duplication": 0.0, "num_embeddings": ROWS, **single} for i in range(ITEMS)]
    shape = {"num_embeddings": ROWS, "pooling_factor": ids, "lengths": "poisson"}
    return {
        "format": "generator", "seed": 1, "dense": 4, "num_samples": samples,
        "features": [*({**each, **shape} for each in users), *items], "sessions": {"size": size},
    }  # fmt: skip


def write(dataset: Dataset, files: dict[str, Path], size: int) -> None:
    """The samples in order of their sessions, and in random order."""
    whole = concatenated([dataset.source.read(block).samples for block in range(len(dataset.source.sizes()))])
    orders = {"clustered": np.arange(len(whole)), "shuffled": np.random.default_rng(0).permutation(len(whole))}
    for kind, folder in files.items():
        folder.mkdir()
        write_parquet(_groups(whole, orders[kind]), dataset.schema, folder / "part-00000.parquet", size)


def _groups(whole: Batch, order: "np.ndarray[Any, Any]") -> Iterator[Batch]:
    for first in range(0, len(order), GROUP):
        yield whole.take(order[first : first + GROUP])


def a_run(folder: Path, files: dict[str, Path], kind: str, size: int, steps: int) -> Run:
    """The training job of a kind."""
    source = files["shuffled" if kind == "shuffled" else "clustered"]
    how: Any = {"deduplicated": "auto", "forced": tuple((f"user_{i}",) for i in range(USERS))}.get(kind, "off")
    return Run(
        data=RunData(
            train=str(source), batch_size=BATCH, deduplicate=how, keep_together=1 if kind == "shuffled" else size
        ),
        model=RunModel(embedding_dim=DIM, bottom=(64,), top=(64,)),
        output=str(folder / "out"), ranks=2, steps=steps, checkpoint=None, metrics=RunMetrics(every=1),
    )  # fmt: skip


def reading(run: Run, groups: list[list[str]], *, transforms: bool = False) -> float:
    """CPU seconds of a pass over the samples, all threads."""
    wanted = {"auto": list(groups), "off": []}.get(
        str(run.data.deduplicate), [list(each) for each in run.data.deduplicate]
    )
    raw: dict[str, Any] = {"format": "parquet", "paths": [run.data.train]}
    if transforms:
        raw["transforms"] = [each for i in range(USERS) for each in changes(f"user_{i}")]
        wanted += [[f"{group[0]}_pairs"] for group in wanted if group[0].startswith("user")]
    begun = time.process_time()
    with open_dataset(spec_from_raw(raw, "a benchmark")).batches(
        rank=0, world_size=1, batch_size=BATCH, seed=0, together=run.data.keep_together, deduplicate=wanted
    ) as batches:
        for _ in batches:
            pass
    return time.process_time() - begun


def changes(feature: str) -> list[dict[str, Any]]:
    """Transforms of a feature, as ingestion has them: pairs of neighbours as another feature, and ids hashed."""
    pairs = {"op": "n_gram", "feature": feature, "length": 2, "num_embeddings": ROWS, "into": f"{feature}_pairs"}
    return [pairs, {"op": "hash", "feature": feature, "num_embeddings": ROWS}]


def stepping(run: Run, output: str) -> list[float]:
    """Seconds of each step but the first third."""
    train(run, settings=(f"output={output}",))
    lines = [json.loads(line) for line in Path(output, "log.jsonl").read_text().splitlines()]
    steps = [line["step_s"] for line in lines if line["event"] == "train"]
    return steps[len(steps) // 3 :]


def shown(row: Row) -> str:
    """A row of the table: each figure of shuffled plain batches over that of deduplicated ones."""
    size = row["bytes"]
    cells = (
        row["ids"], row["size"], f"{row['factor']:.1f}", f"{size['shuffled'] / size['clustered']:.2f}x",
        less(row["read_cpu_s"]), less(row["changed_cpu_s"]),
        *faster(row["step_s"]),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def faster(seconds: dict[str, list[float]]) -> tuple[str, str]:
    """Seconds of steps, shuffled and deduplicated, and with all deduplicated over none; dashes without --rounds."""
    if not seconds["shuffled"]:
        return "-", "-"
    plain, once = (statistics.median(seconds[kind]) * 1e3 for kind in ("shuffled", "deduplicated"))
    found = ratio(seconds, "shuffled", "deduplicated")
    return f"{found}, {plain:.0f} to {once:.0f} ms", ratio(seconds, "forced", "clustered")


def less(seconds: dict[str, list[float]]) -> str:
    """Seconds of reading, shuffled and deduplicated."""
    plain, once = (statistics.median(seconds[kind]) for kind in ("shuffled", "deduplicated"))
    return f"{ratio(seconds, 'shuffled', 'deduplicated')}, {plain:.2f} to {once:.2f} s"


def ratio(seconds: dict[str, list[float]], above: str, below: str) -> str:
    """The median of the ratios of a turn, and the smallest and largest of them."""
    found = [one / other for one, other in zip(seconds[above], seconds[below], strict=True)]
    return f"{statistics.median(found):.2f}x ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    main()
