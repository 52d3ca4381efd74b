"""Weights of samples: read, checked, carried by feeds, learned by and scored; refused where a step has its own loss."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import check_spec, open_dataset, spec_from_raw
from recsmith.data.batch import concatenated
from recsmith.data.converting import FileLayout, KeyColumns, convert_dataset
from recsmith.errors import UsageError
from recsmith.feeding.worker import StepPart, arrays_of, part_of
from recsmith.training import Run, RunData, RunModel, train
from recsmith.training.launch.dry_run import described

pytestmark = pytest.mark.usefixtures("torchrec")
pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
ROWS = 256


def spec(folder: Path, weights: list[Any], **words: Any) -> dict[str, Any]:
    """Samples whose label says nothing but by their weights: of each item, both labels occur equally often."""
    item = [at // 2 % 8 for at in range(ROWS)]
    columns = {"item": item, "clicked": [at % 2 for at in range(ROWS)], "importance": weights}
    parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
    features = [{"name": "item", "num_embeddings": 8}]
    return {"format": "parquet", "paths": [str(folder / "a.parquet")], "features": features, "labels": ["clicked"],
            "weight": "importance", **words}  # fmt: skip


def weights() -> list[float]:
    """3 where item and label are both even or both odd, 1 elsewhere."""
    return [3.0 if (at // 2 % 8 + at) % 2 == 0 else 1.0 for at in range(ROWS)]


def a_run(output: Path, train_on: dict[str, Any], **words: Any) -> Run:
    data = RunData(train=train_on, test=train_on, batch_size=32, epochs=6)
    return Run(data=data, model=RunModel(embedding_dim=8), output=str(output), ranks=2, **words)


def test_models_learn_what_weights_say(tmp_path: Path):
    weighted = train(a_run(tmp_path / "one", spec(tmp_path, weights())))["test"]
    assert weighted["auc"] > 0.7
    assert weighted["ne"] < 1.0
    plain = train(a_run(tmp_path / "two", spec(tmp_path, [2.0] * ROWS)))["test"]
    assert plain["auc"] == pytest.approx(0.5, abs=0.05)


def test_weights_are_read_written_and_sent_by_workers(tmp_path: Path):
    dataset = open_dataset(spec_from_raw(spec(tmp_path, weights()), "here"))
    read = concatenated(list(dataset.batches(rank=0, world_size=1, batch_size=50, seed=0)))
    order = np.argsort(read.sample_ids)
    assert read.weights is not None
    assert read.weights[order].tolist() == weights()
    sent = part_of(
        arrays_of(StepPart(window=0, first=0, corrupt=0, samples=read), dataset.schema, ()), dataset.schema, ()
    )
    assert sent.samples.weights is not None
    assert sent.samples.weights.tolist() == read.weights.tolist()
    convert_dataset(dataset, tmp_path / "again", FileLayout(), KeyColumns(session=None, time=None))
    again = open_dataset(tmp_path / "again")
    assert again.schema.weight == "importance"
    assert again.source.read(0).samples.weights.tolist() == weights()  # type: ignore[union-attr]


def test_weights_that_are_none_are_corrupt_samples(tmp_path: Path):
    odd = [None, -1.0, float("nan"), *weights()[3:]]
    found = check_spec(spec_from_raw(spec(tmp_path, odd), "here"))
    assert (found.samples, found.corrupt) == (ROWS - 3, 3)
    assert "has no weight in column 'importance'" in found.examples[0]


def test_steps_with_a_loss_of_their_own_refuse_weights(tmp_path: Path):
    run = a_run(tmp_path / "out", spec(tmp_path, weights()), pipeline="dance")
    with pytest.raises(UsageError, match=r"weights of samples changes the loss of a sample, .* not go with pipeline"):
        described(run)
