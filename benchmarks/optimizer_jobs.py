"""Clicks, and a DLRM on them in this process, its tables plain: what optimizers.py trains."""

import statistics
from collections.abc import Sequence
from typing import Any

import torch

from recsmith.scoring.scores import mean_within
from recsmith.training import DenseOptimizer, Run, RunData, RunModel
from recsmith.training.batches import TrainingBatch, training_batches
from recsmith.training.job.models import Task, build_task
from recsmith.training.job.sharded import draw_weights, table_of
from recsmith.training.optimizers.building import table_class
from recsmith.training.optimizers.dense import dense_optimizer
from recsmith.training.sources import open_source
from recsmith.training.stores.device import DeviceRows
from recsmith.training.tables.plain import features_of, initial_weights_of

FEATURES = [{"name": name, "num_embeddings": rows} for name, rows in
            (("a", 300), ("b", 200), ("c", 100), ("d", 50), ("e", 1000), ("f", 30))]  # fmt: skip
CLICKS: dict[str, Any] = {"format": "generator", "dense": 13, "features": FEATURES}
MODEL = RunModel(embedding_dim=16, bottom=(128, 64), top=(256, 128))
SAMPLES, TESTED = 512, 40
FAR = 2_000_000  # first sample of those that are scored


class Clicks:
    """Batches of a seed, kept as tensors: those that are trained on, in order, and others."""

    def __init__(self, words: dict[str, Any], seed: int, steps: int, *, quick: bool = False,
                 model: RunModel = MODEL) -> None:  # fmt: skip
        data = {**words, "seed": 100 + seed}
        self.run = Run(
            data=RunData(train={**data, "num_samples": SAMPLES * steps}, batch_size=SAMPLES, shuffle=False),
            output="unused", model=model, seed=seed,
        )  # fmt: skip
        self.train_on = list(self.batches(data, 0, steps))
        self.test_on = list(self.batches(data, FAR, 2 if quick else TESTED))

    def batches(self, data: dict[str, Any], first: int, count: int) -> Sequence[TrainingBatch]:
        """So many batches from a sample on."""
        run = Run(
            data=RunData(train={**data, "first_sample": first, "num_samples": SAMPLES * count}, batch_size=SAMPLES,
                         shuffle=False), output="unused", model=MODEL,
        )  # fmt: skip
        source = open_source(run)
        self.schema = source.schema
        features = features_of(build_task(MODEL, source.schema, 0))
        return list(training_batches(source, run.data.batch_sizes(1), features, rank=0, ranks=1))

    def model(self) -> Task:
        """The model of this seed, untrained."""
        task = build_task(self.run.model, self.schema, self.run.seed, tables_on="cpu")
        draw_weights(DeviceRows(task), initial_weights_of(task), self.run.seed)
        return task

    def train(self, optimizer: DenseOptimizer) -> tuple[float, float]:
        """Log loss of the last tenth of training, and on the others; tables learn by row-wise Adagrad."""
        task = self.model()
        tables = [each for name, each in task.named_parameters() if table_of(name)]
        dense = [each for name, each in task.named_parameters() if not table_of(name)]
        of_tables: Any = table_class("rowwise_adagrad")
        optimizers = [of_tables(tables, lr=0.05), dense_optimizer(dense, optimizer)]
        found: list[float] = []
        for batch in self.train_on:
            for each in optimizers:
                each.zero_grad()
            loss, _ = task(batch)
            loss.backward()
            for each in optimizers:
                each.step()
            found.append(float(loss.detach()))
        return statistics.mean(found[-max(1, len(found) // 10) :]), tested(task, self.test_on)


def tested(task: Task, batches: Sequence[TrainingBatch]) -> float:
    """The mean log loss."""
    with torch.no_grad():
        return statistics.mean(float(task(batch)[0]) for batch in batches)


def mean_of(found: dict[str, Any], name: str, key: str) -> float:
    """Over seeds."""
    return statistics.mean(each[key] for kept, each in found.items() if kept.rpartition("/")[0] == name)


def beside(found: dict[str, Any], name: str, other: str, key: str) -> str:
    """Mean of differences paired by seed, with an interval at 95 % by Student's t."""
    if name == other:
        return ""
    mine = {kept.rpartition("/")[2]: each[key] for kept, each in found.items() if kept.rpartition("/")[0] == name}
    less = [mine[seed] - found[f"{other}/{seed}"][key] for seed in mine if f"{other}/{seed}" in found]
    mean, within = mean_within(less)
    return f"{mean:+.5f}" if within is None else f"{mean:+.5f} ± {within:.5f}"
