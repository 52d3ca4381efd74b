"""Ids that the generator lets behave alike in groups are found by a learned hash."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.embeddings import CompressionRule, learn_hash, save_maps
from recsmith.training import Run, RunData, RunModel
from recsmith.training.optimizers.settings import RunOptimizers, SparseOptimizer
from recsmith.training.run.tables import tables_of
from recsmith.training.sources import open_data
from recsmith.training.systems.stored.id_maps import id_counts

ITEMS, BATCH, SAMPLES = 300, 256, 20_480


def a_run() -> Run:
    features = [{"name": "item", "num_embeddings": ITEMS, "zipf": 0.6}, {"name": "user", "num_embeddings": 20}]
    teacher = {"clusters": 12, "signal": 2.5, "pairs": 0.3, "dense": 0.1}
    words = {"format": "generator", "seed": 0, "dense": 2, "features": features, "teacher": teacher}
    return Run(
        data=RunData(
            train={**words, "num_samples": SAMPLES},
            test={**words, "first_sample": SAMPLES, "num_samples": 10_000},
            batch_size=BATCH,
            epochs=2,
        ),
        model=RunModel(embedding_dim=8, bottom=(16,), top=(16,)),
        output="unused",
        optimizers=RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
    )


def test_a_learned_hash_wins_back_what_hashing_loses(tmp_path: Path, torchrec: None):
    pytest.importorskip("sklearn")
    from training.unsharded import trained_unsharded

    run, steps = a_run(), 2 * SAMPLES // BATCH
    hashing = CompressionRule(method="hash", tables="item", above_rows=0, factor=4)

    def loss(*rules: CompressionRule) -> float:
        return held_out_loss(
            trained_unsharded(replace(run, model=replace(run.model, compression=rules)), steps)[0], run
        )

    cheap, _ = trained_unsharded(replace(run, model=replace(run.model, embedding_dim=4)), steps)
    vectors = cheap.model.sparse_arch.embedding_bag_collection.embedding_bags["item"].weight.detach().double().numpy()
    dataset = open_data(run.data.train, "data.train")
    items = [table for table in tables_of(run.model, dataset.schema) if table.name == "item"]
    made = learn_hash(vectors, id_counts(dataset, items)["item"], ITEMS // 4)
    save_maps({"item": made}, tmp_path / "maps.safetensors")
    full, hashed = loss(), loss(hashing)
    learned = loss(replace(hashing, method="learned_hash", maps=str(tmp_path / "maps.safetensors")))
    assert hashed - full > 0.01
    assert (hashed - learned) / (hashed - full) >= 0.9


def held_out_loss(task: Any, run: Run) -> float:
    """The log loss on samples that training never saw."""
    import torch

    from recsmith.training.batches import as_tensors
    from recsmith.training.tables.plain import features_of

    task.eval()
    test = open_data(run.data.test, "data.test")
    with (
        test.batches(rank=0, world_size=1, batch_size=10_000, seed=0, shuffle=False, drop_last=False) as batches,
        torch.no_grad(),
    ):
        return float(np.mean([float(task(as_tensors(batch, features_of(task)))[0]) for batch in batches]))
