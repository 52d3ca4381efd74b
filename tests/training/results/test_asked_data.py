"""Data beside a trained model is read as its run reads data, with the model's own vocabularies."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.training.results.asked_data import read_as_run


def test_parquet_that_says_nothing_of_its_columns_is_read_as_that_of_the_run(tmp_path: Path) -> None:
    """As a day of Spark's logs, also where the days that were trained on are gone; what says its columns is its own."""
    from recsmith.data import write_dataset
    from recsmith.training import Run, RunData
    from recsmith.training.run import save_run
    from recsmith.training.sources import open_data

    parquet: Any = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "logs/day=2").mkdir(parents=True)
    rows = importlib.import_module("pyarrow").table({"user": [1, 2, 3], "clicked": [0, 1, 1]})
    parquet.write_table(rows, tmp_path / "logs/day=2/part-0.snappy.parquet")
    train = {"format": "parquet", "paths": [str(tmp_path / "logs/day=1")], "labels": ["clicked"],
             "features": [{"name": "user", "num_embeddings": 9}]}  # fmt: skip
    save_run(Run(data=RunData(train=train), output=str(tmp_path)), tmp_path / "run.json")
    day, model = str(tmp_path / "logs/day=2"), tmp_path / "model"
    assert read_as_run(day, model) == {**train, "paths": [day]}
    assert open_data(read_as_run(day, model), "--data").num_samples == 3
    write_dataset(open_data(read_as_run(day, model), "--data"), tmp_path / "own")
    assert read_as_run(str(tmp_path / "own"), model) == str(tmp_path / "own")
    (tmp_path / "tuesday.yaml").write_text(f"schema: recsmith/run/1\noutput: x\ndata: {{train: '{day}'}}\n")
    assert read_as_run(str(tmp_path / "tuesday.yaml"), model)["paths"] == [day], "of a run, what it trains on"


def test_a_path_beside_a_trained_model_is_read_as_the_data_of_its_run(tmp_path: Path) -> None:
    """A CSV says nothing of its columns; its split is left out, and other kinds of files are read as they say."""
    from recsmith.training import Run, RunData
    from recsmith.training.run import save_run
    from recsmith.training.sources import open_data

    (tmp_path / "days").mkdir()
    for name in ("old", "new"):
        (tmp_path / f"days/{name}.csv").write_text("user,clicked\n1,0\n2,1\n3,1\n")
    train = {"format": "text", "paths": [str(tmp_path / "days/old.csv")], "labels": ["clicked"], "split": "train",
             "features": [{"name": "user", "num_embeddings": 9}]}  # fmt: skip
    save_run(Run(data=RunData(train=train), output=str(tmp_path)), tmp_path / "run.json")
    found = read_as_run(str(tmp_path / "days/new.csv"), tmp_path / "model")
    assert open_data(found, "--test").num_samples == 3
    assert found["paths"] == [str(tmp_path / "days/new.csv")]
    assert read_as_run(str(tmp_path / "days"), tmp_path / "model")["paths"] == [str(tmp_path / "days")]
    assert read_as_run("new.parquet", tmp_path / "model") == "new.parquet"
    assert read_as_run(train, tmp_path / "model") == train
    with pytest.raises(UsageError, match="other files need a spec that says what their columns are"):
        open_data(str(tmp_path / "days/new.csv"), "--test")
