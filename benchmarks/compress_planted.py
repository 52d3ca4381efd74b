"""How much of what plain hashing loses a learned hash wins back where ids behave alike in groups.

    python benchmarks/compress_planted.py [--seeds 5] [--factor 4] [--items 1000] [--samples 60000] [--quick]
    python benchmarks/compress_planted.py --independent [--seeds 3]      # which method tells ids apart that differ

The generator gives all ids of a group the same hidden vector (teacher.clusters), so a table of as many rows as groups
could know all there is to know. A model is trained as it is, with hashed items, and with items that have learned to
collide; all in plain PyTorch in this process. Recovered: (loss of hashing - loss of the learned hash) / (loss of
hashing - loss as it is), of log losses on samples that training never saw. Above 100 % the learned hash is better than
the table as it is.

With --independent every id has a hidden vector of its own and ids are asked for about equally often, so that each
collision mixes two ids that have nothing in common. Lost: log loss above that of the table as it is.
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compress import plain_task

from recsmith.embeddings import CompressionRule, LogicalTable, learn_hash, parameters, save_maps, transforms_of
from recsmith.training import Run, RunData, RunModel
from recsmith.training.batches import as_tensors
from recsmith.training.optimizers.settings import RunOptimizers, SparseOptimizer
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data
from recsmith.training.systems.stored.id_maps import cheap_columns, id_counts
from recsmith.training.tables.plain import features_of

USERS, GROUPS = 50, 40
COLUMNS = 16
METHODS, FACTORS = ("hash", "quotient_remainder", "path_based"), (4.0, 16.0)  # of --independent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--factor", type=float, default=4.0)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--independent", action="store_true")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    samples, seeds = (10_000, 1) if asked.quick else (asked.samples, asked.seeds)
    if asked.independent:
        print("| method | factor | smaller by | log loss | lost |\n|---|---|---|---|---|")
        for (method, factor), losses in independent(asked.items, samples, seeds).items():
            size = smaller(method, factor, asked.items)
            print(f"| {method} | {factor:g} | {size:.1f}x | {losses[0]:.4f} | {losses[1]:.4f} (seeds: {losses[2]}) |")
        return
    found = [recovered(seed, asked.items, samples, asked.factor) for seed in range(seeds)]
    print("| seed | original table | hash | learned hash | recovered |\n|---|---|---|---|---|")
    for seed, (full, hashed, learned) in enumerate(found):
        print(f"| {seed} | {full:.4f} | {hashed:.4f} | {learned:.4f} | {(hashed - learned) / (hashed - full):.0%} |")
    print("mean recovered", f"{statistics.fmean((h - le) / (h - f) for f, h, le in found):.0%}")


def recovered(seed: int, items: int, samples: int, factor: float) -> tuple[float, float, float]:
    """Log losses on new samples: as it is, hashed, and with a learned hash."""
    run = planted_run(seed, items, samples)
    hashing = item_rule("hash", factor)
    with tempfile.TemporaryDirectory() as folder:
        maps = str(Path(folder) / "maps.safetensors")
        dataset = open_data(run.data.train, "data.train")
        tables = [table for table in tables_of(run.model, dataset.schema) if table.name == "item"]
        counts = id_counts(dataset, tables)["item"]
        cheap = plain_task(replace(run, model=replace(run.model, embedding_dim=cheap_columns([counts]))))
        weight = cheap.model.sparse_arch.embedding_bag_collection.embedding_bags["item"].weight
        vectors = weight.detach().double().numpy()
        save_maps({"item": learn_hash(vectors, counts, round(items / factor), seed=seed)}, maps)
        learning = replace(hashing, method="learned_hash", maps=maps)
        rules: tuple[tuple[CompressionRule, ...], ...] = ((), (hashing,), (learning,))
        losses = [log_loss(replace(run, model=replace(run.model, compression=each))) for each in rules]
    return losses[0], losses[1], losses[2]


def item_rule(method: str, factor: float) -> CompressionRule:
    return CompressionRule(method=method, tables="item", above_rows=0, factor=factor)


def smaller(method: str, factor: float, items: int) -> float:
    """How many times fewer numbers the item table has, networks of path_based included."""
    if method == "full":
        return 1.0
    stored = transforms_of([item_rule(method, factor)], [LogicalTable("item", items, COLUMNS)])
    return items * COLUMNS / parameters(stored["item"])


def independent(items: int, samples: int, seeds: int) -> dict[tuple[str, float], tuple[float, float, str]]:
    """Mean log loss of each method at each factor, what it loses to the table as it is, and that of each seed."""
    cases = [("full", 1.0), *((method, factor) for factor in FACTORS for method in METHODS)]
    found: dict[tuple[str, float], list[float]] = {case: [] for case in cases}
    for seed in range(seeds):
        run = planted_run(seed, items, samples, alike=False)
        for method, factor in cases:
            rules = () if method == "full" else (item_rule(method, factor),)
            found[method, factor].append(log_loss(replace(run, model=replace(run.model, compression=rules))))
    full = found["full", 1.0]
    lost = {case: [loss - best for loss, best in zip(losses, full, strict=True)] for case, losses in found.items()}
    return {
        case: (statistics.fmean(losses), statistics.fmean(lost[case]), ", ".join(f"{each:.4f}" for each in lost[case]))
        for case, losses in found.items()
    }


def planted_run(seed: int, items: int, samples: int, *, alike: bool = True) -> Run:
    zipf = 0.6 if alike else 0.2
    features = [{"name": "item", "num_embeddings": items, "zipf": zipf}, {"name": "user", "num_embeddings": USERS}]
    groups = {"clusters": GROUPS, "similarity": 1.0} if alike else {}
    teacher = {**groups, "signal": 2.5, "pairs": 0.3, "dense": 0.1}
    words = {"format": "generator", "seed": seed, "dense": 2, "features": features, "teacher": teacher}
    return Run(
        data=RunData(
            train={**words, "num_samples": samples},
            test={**words, "first_sample": samples, "num_samples": 20_000},
            batch_size=256,
            epochs=2,
        ),
        model=RunModel(embedding_dim=COLUMNS, bottom=(32,), top=(32,)),
        output="unused",
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        seed=seed,
    )


def log_loss(run: Run) -> float:
    task = plain_task(run).eval()
    test: Any = open_data(run.data.test, "data.test")
    with (
        test.batches(rank=0, world_size=1, batch_size=20_000, seed=0, shuffle=False, drop_last=False) as batches,
        torch.no_grad(),
    ):
        return float(np.mean([float(task(as_tensors(batch, features_of(task)))[0]) for batch in batches]))


if __name__ == "__main__":
    main()
