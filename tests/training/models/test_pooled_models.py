"""Models of several labels and the two-tower model: formulas, the same losses on any ranks, and bits when resumed."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.systems import of_system
from training.test_jobs import from_step, losses

from recsmith.errors import UsageError
from recsmith.training import (
    Checkpointing,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    RunTask,
    SparseOptimizer,
    train,
)

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
ROWS, STEPS, EVERY, BATCH = 480, 6, 3, 48
MODELS = {
    "mmoe": RunModel(name="mmoe", embedding_dim=8, tasks=(RunTask(label="a"), RunTask(label="b"))),
    "ple": RunModel(name="ple", embedding_dim=8, tasks=(RunTask(label="a"), RunTask(label="b"))),
    "wide_deep": RunModel(name="wide_deep", embedding_dim=8, tasks=(RunTask(label="a"), RunTask(label="b"))),
    "two_tower": RunModel(
        name="two_tower", embedding_dim=8, loss="softmax", arguments={"item": ["item", "words"], "layers": [16, 8]}
    ),
}


def data(folder: Path, labels: list[str]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random, path = np.random.default_rng(0), folder / "rows.parquet"
    words = [random.integers(0, 30, random.integers(0, 4)).tolist() for _ in range(ROWS)]
    columns = {
        "user": random.integers(0, 40, ROWS), "item": random.zipf(1.5, ROWS) % 25, "words": words,
        "price": random.normal(size=ROWS), "a": random.integers(0, 2, ROWS), "b": random.random(ROWS),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path, row_group_size=160)
    sizes = {"user": 40, "item": 25, "words": 30}
    features = [{"name": name, "num_embeddings": size} for name, size in sizes.items()]
    return {"format": "parquet", "paths": [str(path)], "features": features, "dense": ["price"], "labels": labels}


def a_run(folder: Path, name: str, **words: Any) -> Run:
    rows = data(folder, ["a"] if name == "two_tower" else ["a", "b"])
    values: dict[str, Any] = {
        "data": RunData(train=rows, test=rows, global_batch_size=BATCH),
        "model": MODELS[name],
        "output": str(folder / "out"),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


@pytest.mark.parametrize("name", MODELS)
def test_ranks_change_no_loss_and_a_job_goes_on_with_the_same_bits(name: str, tmp_path: Path):
    run = a_run(tmp_path, name, ranks=2)
    result = train(run)
    train(run, settings=(f"output={tmp_path / 'alone'}", "ranks=1"))
    assert losses(tmp_path / "alone") == pytest.approx(losses(tmp_path / "out"), rel=1e-6)
    assert len(set(losses(tmp_path / "out"))) == STEPS
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == (tmp_path / "out" / weights).read_bytes()


def test_a_two_tower_model_counts_each_item_that_it_has_trained_on(tmp_path: Path):
    from recsmith.training import load_model

    run = a_run(tmp_path, "two_tower", ranks=2, steps=ROWS // BATCH)  # each sample once
    train(run)
    counts = load_model(tmp_path / "out/model").task.get_buffer("model.body.counts")
    drawn = np.random.default_rng(0)
    [drawn.integers(0, 30, drawn.integers(0, 4)) for _ in range(ROWS)]
    drawn.integers(0, 40, ROWS)
    assert counts.tolist() == np.bincount(drawn.zipf(1.5, ROWS) % 25, minlength=25).tolist()


def test_logits_are_products_corrected_by_how_often_an_item_is_among_others():
    import torch

    from recsmith.training.models.pooled_settings import TwoTowerSettings
    from recsmith.training.models.two_tower import TwoTowerBody

    configs = [_Config("user", 5, 4), _Config("item", 6, 4)]
    body = TwoTowerBody(TwoTowerSettings(layers=(3,), temperature=0.5), configs, 1)
    users, items = torch.randn(3, 3), torch.randn(4, 3)
    logits = body._among(users, items[:3], torch.tensor([2, 5, 2]))  # pyright: ignore[reportPrivateUsage]
    shares = torch.tensor([2 / 3, 1 / 3, 2 / 3])
    expected = users @ items[:3].T - shares.log()
    assert torch.allclose(logits[:, 0], expected.diagonal())
    assert torch.isinf(logits[:, 1:]).tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert torch.allclose(logits[0, 2], expected[0, 1])


class _Config:
    def __init__(self, name: str, rows: int, columns: int) -> None:
        self.feature_names, self.num_embeddings, self.embedding_dim = [name], rows, columns


def test_a_gate_mixes_experts_by_a_softmax():
    import torch

    from recsmith.training.models.experts import Gate

    gate, x, said = Gate(2, 2), torch.tensor([[1.0, 2.0]]), [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])]
    with torch.no_grad():
        gate.weigh.weight.copy_(torch.tensor([[0.0, 0.5], [0.0, 0.0]]))
    share = np.e / (np.e + 1)
    assert gate(x, said)[0].tolist() == pytest.approx([share, 1 - share])


def test_what_these_models_cannot_be_is_said_in_a_sentence(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    def told(run: Run) -> str:
        with pytest.raises(UsageError) as error:
            dry_run(run)
        return str(error.value)

    run = a_run(tmp_path, "two_tower")
    other = replace(run.model, arguments={"item": ["movie"]})
    assert "two_tower reads feature 'movie', and no table looks it up" in told(replace(run, model=other))
    left = replace(run.model, arguments=None)
    assert "feature 'words' is in neither tower" in told(replace(run, model=left))
    members = {"x": (), "y": ("optimizers.dense.learning_rate=0.1",)}
    for array in of_system("arrays", "settings", lambda made: [made.RunArray(members=members, together="always")]):
        assert "array needs samples that are learned each by itself" in told(replace(run, array=array))
    several = RunData(train=data(tmp_path, ["a", "b"]), global_batch_size=BATCH)
    assert "two_tower learns one label" in told(replace(run, data=several))
    with pytest.raises(UsageError, match="write loss: softmax"):
        RunModel(name="two_tower")
    with pytest.raises(UsageError, match="mmoe scores one"):
        RunModel(name="mmoe", loss="softmax")
    with pytest.raises(UsageError, match=r"model.arguments.experts is 0"):
        RunModel(name="mmoe", arguments={"experts": 0})
    with pytest.raises(UsageError, match="expert names no layer"):
        RunModel(name="ple", arguments={"expert": []})
