"""Thirty days of drifting data, learned day by day from the weights of the day before, beside training on all days.

    python benchmarks/daily.py --folder /tmp/daily             # 3 seeds, jobs of two ranks
    python benchmarks/daily.py --folder /tmp/daily --seeds 1 --days 6 --every 3

The data is generated: its truth turns over the days. Feature `late` is in the model from day 10 on, and table `item`
grows on day 20, when items come that were not there before. Each day trains once on the samples of that day in their
order (`start_from` the day before). Every few days a model is also trained from new weights on all days so far, which
has `late` in all of them: once in an order that is shuffled over the days, as a run does unless it says otherwise, and
once in the order of time. Another is trained on the last day alone. All are scored by normalised entropy (NE) on the
next day. Results are kept in --folder, where a stopped command goes on.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sequences import shown

from recsmith.data import open_dataset, spec_from_raw
from recsmith.training import Run, RunData, RunModel, RunOptimizers, SparseOptimizer, train

PER_DAY, BATCH, RATE = 40_960, 512, 0.02
LATE_DAY, GROWN_DAY = 10, 20
TURN = 60  # days in which the truth turns once
SIZES = {"user": 3_000, "item": 4_000, "place": 100, "late": 500}
FEW_ITEMS = 2_400  # that there are before GROWN_DAY
DENSE = 4


def write_days(folder: Path, days: int) -> None:
    """A Parquet file a day; before GROWN_DAY samples of later items are left out."""
    spec = {
        "format": "generator", "num_samples": 4 * PER_DAY * days, "seed": 11, "dense": DENSE,
        "features": [{"name": name, "num_embeddings": size, "zipf": 1.05} for name, size in SIZES.items()],
        "teacher": {"signal": 2.0, "positive_rate": 0.25, "pairs": 0.3, "dense": 0.2},
        "drift": {"kind": "rotating", "samples": 4 * PER_DAY * TURN, "of": ["ids"]},
    }  # fmt: skip
    source: Any = open_dataset(spec_from_raw(spec, "data")).source
    blocks = len(source.sizes())
    for day in range(days):
        path = folder / f"day-{day:02d}.parquet"
        if path.exists():
            continue
        found: list[dict[str, np.ndarray]] = []
        for block in range(day * blocks // days, (day + 1) * blocks // days):
            samples = source.read(block).samples
            columns = {name: samples.ids[name].values for name in SIZES} | {"label": samples.labels[:, 0]}
            columns |= {f"dense_{at}": samples.dense[:, at] for at in range(DENSE)}
            kept = np.flatnonzero(columns["item"] < (FEW_ITEMS if day < GROWN_DAY else SIZES["item"]))
            found.append({name: each[kept] for name, each in columns.items()})
        whole = {name: np.concatenate([each[name] for each in found])[:PER_DAY] for name in found[0]}
        assert len(whole["label"]) == PER_DAY, "too few samples of a day"
        pq.write_table(pa.table(whole), path, row_group_size=8_192)


def data(folder: Path, days: range, last: int) -> dict[str, Any]:
    """Files of days, with the features and rows that a model of day `last` knows."""
    sizes = {**SIZES, "item": FEW_ITEMS if last < GROWN_DAY else SIZES["item"]}
    named = [name for name in sizes if name != "late" or last >= LATE_DAY]
    return {
        "format": "parquet", "paths": [str(folder / f"day-{day:02d}.parquet") for day in days],
        "features": [{"name": name, "num_embeddings": sizes[name]} for name in named],
        "dense": [f"dense_{at}" for at in range(DENSE)], "labels": ["label"],
    }  # fmt: skip


def scored(
    folder: Path, name: str, seed: int, days: range, start: Path | None = None, *, shuffle: bool = True
) -> dict[str, Any]:
    """NE on the next day, and the steps, of a model that is trained on some days; what is there already is read.

    Where the next day has items that the model has no rows for, they are not asked for.
    """
    output, last = folder / f"{name}-{seed}-{days[-1]:02d}", days[-1]
    file = output / "score.json"
    if not file.exists():
        asked = last + 1 if last + 1 != GROWN_DAY else last  # the day on which items come that no model knows
        result = train(Run(
            data=RunData(train=data(folder, days, last), test=data(folder, range(asked, asked + 1), last),
                         global_batch_size=BATCH, shuffle=shuffle),
            output=str(output), ranks=2, seed=seed, start_from=None if start is None else str(start),
            model=RunModel(embedding_dim=8, bottom=(16,), top=(32, 16)),
            optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=RATE)),
        ))  # fmt: skip
        file.write_text(json.dumps({"ne": result["test"]["ne"], "step": result["step"]}), "utf-8")
    return json.loads(file.read_text("utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--every", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write_days(given.folder, given.days)
    trained = range(given.days - 1)  # the last day is only asked for
    judged = [day for day in trained if (day + 1) % given.every == 0 and day + 1 != GROWN_DAY] + [given.days - 2]
    table: dict[int, dict[str, list[float]]] = {}
    for seed in range(given.seeds):
        before: Path | None = None
        for day in trained:
            warm = scored(given.folder, "day-by-day", seed, range(day, day + 1), before, shuffle=False)
            before = given.folder / f"day-by-day-{seed}-{day:02d}"
            if day in judged:
                found = {
                    "warm": warm, "all": scored(given.folder, "all", seed, range(day + 1)),
                    "ordered": scored(given.folder, "ordered", seed, range(day + 1), shuffle=False),
                    "alone": scored(given.folder, "alone", seed, range(day, day + 1)),
                }  # fmt: skip
                row = table.setdefault(day, {name: [] for name in (*found, "worse", "steps")})
                for name, each in found.items():
                    row[name].append(each["ne"])
                best = min(found["all"]["ne"], found["ordered"]["ne"])
                row["worse"].append(100 * (warm["ne"] / best - 1))
                row["steps"].append(found["ordered"]["step"] / warm["step"])
                print(f"seed {seed}, day {day}: {row}", flush=True)
    print("| after day | NE of the next day, day by day | all days, shuffled | all days, in order | the last day alone "
          "| day by day against the better of all days (%) | steps of all days / of a day |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for day, row in sorted(table.items()):
        cells = [shown(row[name]) for name in ("warm", "all", "ordered", "alone", "worse")]
        print(f"| {day + 1} | {' | '.join(cells)} | {np.mean(row['steps']):.0f} |")


if __name__ == "__main__":
    main()
