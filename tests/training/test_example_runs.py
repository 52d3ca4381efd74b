"""The run files of the examples train as their comments say."""

import csv
import importlib
from pathlib import Path

import numpy as np
import pytest

from recsmith.cli.app import app
from recsmith.data import open_dataset, spec_from_raw
from recsmith.training import load_run, train

MOVIELENS = Path(__file__).parents[2] / "examples" / "movielens.yaml"
RAW = MOVIELENS.with_name("movielens_raw.yaml")


@pytest.mark.usefixtures("torchrec")
def test_movielens_learns_something_in_a_few_steps(data: Path, tmp_path: Path):
    path = data / "movielens" / "ml-latest-small"
    settings = (f"data.train.path={path}", f"data.test.path={path}", f"output={tmp_path / 'out'}", "steps=80")
    result = train(load_run(MOVIELENS, settings))
    assert (result["step"], result["complete"]) == (80, True)
    assert result["test"]["auc"] > 0.6


@pytest.mark.usefixtures("torchrec")
def test_movielens_as_published_is_served_from_raw_rows(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # fmt: skip
    """By the commands that the run's comment shows; rows by HTTP have the scores of the test data, to 1e-6."""
    from recsmith.training import load_model

    client = pytest.importorskip("fastapi.testclient")
    monkeypatch.chdir(tmp_path)
    Path("ml-latest-small").symlink_to(data / "movielens" / "ml-latest-small")
    for words in (("data", "vocabulary", RAW, "-o", "vocabularies"), ("train", RAW, "--set", "steps=40"),
                  ("export", "runs/raw", "-o", "served")):  # fmt: skip
        app.main([str(word) for word in words], standalone_mode=False)
    (tmp_path / "vocabularies").rename(tmp_path / "elsewhere")
    with Path("ml-latest-small/movies.csv").open(encoding="utf-8", newline="") as file:
        movies = {row["movieId"]: row for row in csv.DictReader(file)}
    with Path("ml-latest-small/ratings.csv").open(encoding="utf-8", newline="") as file:
        rows = [{**row, **movies[row["movieId"]]} for row in csv.DictReader(file)][:500]
    monkeypatch.setenv("MODEL", "served")
    monkeypatch.syspath_prepend(str(RAW.parent))
    served = client.TestClient(importlib.import_module("serve_model").app)
    answer = served.post("/score", json=rows)
    assert answer.status_code == 200
    (tmp_path / "elsewhere").rename(tmp_path / "vocabularies")
    every = {**load_run(RAW).data.train, "split": "all"}
    dataset = open_dataset(spec_from_raw(every, "all"))
    samples = next(dataset.batches(rank=0, world_size=1, batch_size=500, seed=0, shuffle=False))
    expected = load_model("runs/raw/model").predict(samples)
    assert np.abs(np.array(answer.json()) - expected).max() < 1e-6
    assert expected.std() > 0.01
    wrong = served.post("/score", json=[{"userId": "1"}])
    assert (wrong.status_code, wrong.json()["detail"][:31]) == (422, "the rows have no column 'title'")
