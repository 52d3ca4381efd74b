"""Jobs of several tasks whose labels may be missing: alike on any number of ranks, to the bit when resumed, scored."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.test_jobs import from_step

from recsmith.errors import CorruptFile, UsageError
from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, RunTask, evaluate, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
ROWS, STEPS, EVERY, BATCH = 600, 8, 4, 48
TASKS = (
    RunTask(label="clicked"),
    RunTask(label="bought", loss={"name": "test_task_jobs:focal", "gamma": 1.0}, weight=2.0),
    RunTask(label="seconds", loss="mse", weight=0.5),
)


def focal(logits: Any, labels: Any, *, gamma: float = 2.0) -> Any:
    import torch

    entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return (1 - torch.exp(-entropy)) ** gamma * entropy


def named(tables: Any, dense: int) -> Any:
    """A model of one's own: a layer for each label, whose logits it names."""
    import torch

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = tables
            width = dense + sum(each.embedding_dim for each in tables.embedding_bag_configs())
            self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(width, 1) for name in ("seconds", "bought")})
            self.clicks = torch.nn.Linear(width, 1)

        def forward(self, values: torch.Tensor, features: Any) -> dict[str, torch.Tensor]:
            together = torch.cat([values, self.tables(features).values()], dim=1)
            return {"clicked": self.clicks(together), **{name: head(together) for name, head in self.heads.items()}}

    return Named()


def write(path: Path, labels: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    users, items = random.integers(0, 50, ROWS), random.integers(0, 80, ROWS)
    pq.write_table(pa.table({"user": users, "item": items, **labels}), path, row_group_size=200)


def labels() -> dict[str, Any]:
    """Of which `bought` is missing where nothing was clicked: null in the first half, NaN in the other."""
    import pyarrow as pa

    random = np.random.default_rng(1)
    clicked, seconds = random.random(ROWS) < 0.5, random.normal(20, 30, ROWS)
    bought = [float(random.random() < 0.3) if each else (None if at < ROWS // 2 else float("nan"))
              for at, each in enumerate(clicked)]  # fmt: skip
    return {"clicked": clicked.astype(np.int64), "bought": pa.array(bought, pa.float32()), "seconds": seconds / 10}


def data(path: Path, **words: Any) -> dict[str, Any]:
    features = [{"name": "user", "num_embeddings": 50}, {"name": "item", "num_embeddings": 80}]
    told = {"missing_labels": ["bought"], "number_labels": ["seconds"], **words}
    names = ["clicked", "bought", "seconds"]
    return {"format": "parquet", "paths": [str(path)], "features": features, "labels": names, **told}


def a_run(folder: Path, source: Path, **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train=data(source), test=data(source), global_batch_size=BATCH),
        "model": RunModel(name="test_task_jobs:named", embedding_dim=8, tasks=TASKS),
        "output": str(folder),
        "steps": STEPS,
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1, group="user"),
    }
    return Run(**{**values, **words})


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model and the loss of this file, for ranks too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tasks")
    write(folder / "rows.parquet", labels())
    run = a_run(folder / "out", folder / "rows.parquet", ranks=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        return run, train(run)


def lines(folder: Path | str) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    kept = ("step", "labels", "logloss", "rmse")
    return [{name: line.get(name) for name in kept} for line in read if line["event"] == "train"]


def test_one_rank_trains_what_two_ranks_do(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    alone = train(run, settings=(f"output={tmp_path / 'alone'}", "ranks=1"))
    for name, scores in result["test"]["labels"].items():
        for score in ("logloss", "rmse"):
            found = alone["test"]["labels"][name].get(score) or 0.0
            assert found == pytest.approx(scores.get(score) or 0.0, rel=1e-6)
    told = [line["labels"]["seconds"]["rmse"] for line in lines(tmp_path / "alone")]
    assert told == pytest.approx([line["labels"]["seconds"]["rmse"] for line in lines(run.output)], rel=1e-6)


def test_a_job_that_goes_on_ends_with_the_same_bits(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert lines(again) == lines(run.output)


def test_each_task_is_scored_by_its_kind_on_the_samples_that_have_its_label(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    found = result["test"]["labels"]
    there = ~np.isnan(np.array(labels()["bought"].to_numpy(zero_copy_only=False), np.float64))
    assert (result["test"]["samples"], found["bought"]["samples"]) == (ROWS, int(there.sum()))
    assert found["seconds"]["rmse"] > 0
    assert found["seconds"]["auc"] is None
    assert found["clicked"]["ranking"]["groups"] > 0
    assert "samples" not in found["clicked"]
    assert result["test"]["logloss"] == pytest.approx((found["clicked"]["logloss"] + found["bought"]["logloss"]) / 2)
    assert result["test"]["rmse"] == found["seconds"]["rmse"]
    card = json.loads(Path(run.output, "model/card.json").read_text())
    assert card["test"]["labels"].keys() == found.keys()
    assert len(card["model"]["tasks"]) == 3


def test_the_model_is_evaluated_and_says_numbers_as_they_are(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    from recsmith.training import load_model

    scores = evaluate(run.output, ranks=1).labels or {}
    assert scores["seconds"].rmse == pytest.approx(result["test"]["labels"]["seconds"]["rmse"], rel=1e-6)
    said = load_model(Path(run.output) / "model")({"user": [[3], [4]], "item": [[1], [2]]})
    assert said.shape == (2, 3)
    assert ((said[:, :2] > 0) & (said[:, :2] < 1)).all()


def test_a_run_that_cannot_learn_its_labels_is_refused_before_it_starts(tmp_path: Path):
    source = tmp_path / "rows.parquet"
    write(source, labels())

    from recsmith.training.launch.launching import dry_run

    def told(**words: Any) -> str:
        with pytest.raises(UsageError) as error:
            dry_run(a_run(tmp_path / "out", source, **words))
        return str(error.value)

    own = RunModel(name="test_task_jobs:named", embedding_dim=8)
    assert "label 'bought' may be missing, which a run without tasks cannot learn" in told(model=own)
    fewer = RunModel(name="test_task_jobs:named", embedding_dim=8, tasks=TASKS[:2])
    assert "label 'seconds' of the data has no task" in told(model=fewer)
    assert "model.tasks changes the loss of a sample" in told(pipeline="dance")
    strict = RunData(train=data(source, number_labels=[]), global_batch_size=BATCH)
    assert not Path(tmp_path / "out").exists()
    with pytest.raises(CorruptFile, match=r"label 'seconds' .*labels are 0 to 1"):
        train(a_run(tmp_path / "out", source, data=strict, ranks=1))


def test_a_sample_without_any_label_is_corrupt(tmp_path: Path):
    from recsmith.data import open_dataset, spec_from_raw

    write(tmp_path / "rows.parquet", {"a": [None, *[1.0] * (ROWS - 1)], "b": [float("nan"), *[0.0] * (ROWS - 1)]})
    told = {"labels": ["a", "b"], "missing_labels": ["a", "b"], "number_labels": []}
    dataset = open_dataset(spec_from_raw(data(tmp_path / "rows.parquet", **told), "data"))
    block = dataset.source.read(0)
    assert block.corrupt == 1
    assert block.first_corrupt.startswith("row 0")
    assert "no label" in block.first_corrupt
