"""Real jobs: sharding changes no loss, a checkpoint loses nothing, what is exported is what was trained."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import locked_folder
from recsmith.prediction.traces import load_capture
from recsmith.training import (
    Checkpointing,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    RunTable,
    SparseOptimizer,
    train,
)  # fmt: skip

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
SIZES = {"a": 100, "b": 503, "c": 21, "d": 64}
KINDS = {"a": "table_wise", "b": "row_wise", "c": "data_parallel", "d": "column_wise"}
FEATURES = [{"name": name, "num_embeddings": size} for name, size in SIZES.items()]
STEPS, EVERY, BATCH, DIM = 12, 4, 48, 8


def data(first: int, samples: int) -> dict[str, Any]:
    words = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES}
    return {**words, "first_sample": first, "num_samples": samples}


def plan_for_two(folder: Path) -> str:
    """Each table by another sharding type."""
    tables = [{"name": n, "num_embeddings": s, "embedding_dim": DIM, "pooling_factor": 1} for n, s in SIZES.items()]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def a_run(output: Path, **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train=data(0, 20_000), test=data(20_000, 101), global_batch_size=BATCH),
        "model": RunModel(embedding_dim=DIM, bottom=(8,), top=(8,)),
        "output": str(output),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


def steps_of(folder: Path, event: str) -> list[int]:
    """Steps of the lines of an event, in their order."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["event"] == event]


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run on two ranks, each table sharded by another type, and what came of it."""
    folder = tmp_path_factory.mktemp("trained")
    run = a_run(folder / "out", plan=plan_for_two(folder), ranks=2)
    return run, train(run)


def test_losses_are_those_of_the_unsharded_model(trained: tuple[Run, dict[str, Any]]):
    run, _ = trained
    expected = unsharded_losses(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert expected[-1] < expected[0]


def test_a_job_that_is_complete_is_found_so(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again, said = tmp_path / "again", list[str]()
    shutil.copytree(run.output, again)
    shutil.rmtree(again / "model")  # the job was killed between its last checkpoint and the model
    done = train(run, settings=(f"output={again}",), on_progress=lambda message: said.append(message.get("note", "")))
    assert (done["step"], done["complete"], done["test"]) == (STEPS, True, result["test"])
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert said[-1] == f"nothing was left to train after step {STEPS}; the model is in '{again / 'model'}'"
    assert steps_of(again, "start") == [0, STEPS]
    assert steps_of(again, "test") == [STEPS]  # not again


def test_a_folder_has_one_job_at_a_time(tmp_path: Path):
    with locked_folder(tmp_path / "out"), pytest.raises(UsageError, match="another run writes to"):
        train(a_run(tmp_path / "out"))
    assert not (tmp_path / "out/run.json").exists()


def from_step(run: Run, step: int, target: Path) -> Path:
    """A copy of a run's folder as it was when a job was killed after a step: later checkpoints are not there."""
    shutil.copytree(run.output, target)
    for folder in (target / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)
    shutil.rmtree(target / "model")
    (target / "checkpoints" / "step-00000099.partial").mkdir()  # of a job that was killed while it saved
    return target


def test_a_resumed_job_ends_with_the_same_bits(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    assert (again / "model/weights.safetensors").read_bytes() == Path(
        run.output, "model/weights.safetensors"
    ).read_bytes()
    assert losses(again) == losses(Path(run.output))
    steps = sorted(folder.name for folder in (again / "checkpoints").iterdir())
    assert steps == [f"step-{step:08d}" for step in (EVERY, 2 * EVERY, STEPS)]


def test_ids_that_cross_ranks_ahead_of_their_batch_change_no_bit(trained: tuple[Run, dict[str, Any]], tmp_path: Path):
    run, result = trained
    ahead = from_step(run, EVERY, tmp_path / "ahead")
    made = train(run, settings=(f"output={ahead}", "pipeline=sparse_dist", "metrics.evaluate_every=3"))
    assert made["test"] == result["test"]
    assert steps_of(ahead, "test") == [6, 9, STEPS]  # the last step is scored once
    assert made["sent_bytes"] == pytest.approx(result["sent_bytes"], rel=0.05)  # batches have more or fewer ids
    assert (ahead / "model/weights.safetensors").read_bytes() == Path(
        run.output, "model/weights.safetensors"
    ).read_bytes()
    assert losses(ahead) == losses(Path(run.output))


def test_another_number_of_ranks_plans_anew_and_goes_on_with_the_same_losses(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path
):
    run, _ = trained
    elsewhere = from_step(run, 2 * EVERY, tmp_path / "elsewhere")
    train(run, settings=(f"output={elsewhere}", "ranks=3", "plan=auto"))
    assert losses(elsewhere) == pytest.approx(losses(Path(run.output)), rel=1e-6)
    plan = recsmith.load_plan(elsewhere / "plan.json")
    assert plan.cluster.world_size == 3
    copied = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    assert copied == {"c"}  # as in the checkpoint, whose state each plan of other kinds would have to rearrange


def test_the_exported_model_predicts_what_was_scored(trained: tuple[Run, dict[str, Any]]):
    from recsmith.data import open_dataset, spec_from_raw
    from recsmith.training import load_model

    run, result = trained
    model = load_model(Path(run.output) / "model")
    test = open_dataset(spec_from_raw(dict(run.data.test), "test"))
    with test.batches(rank=0, world_size=1, batch_size=101, seed=0, shuffle=False) as batches:
        batch = next(batches)
    p, labels = model.predict(batch)[:, 0].astype(np.float64), batch.labels[:, 0]
    loss = -np.mean(np.where(labels > 0.5, np.log(p), np.log(1 - p)))
    assert result["test"]["samples"] == 101
    assert result["test"]["logloss"] == pytest.approx(loss, rel=1e-5)
    ids = {name: [batch.ids[name].values[:1].tolist()] for name in SIZES}
    assert model(ids, [batch.dense[0].tolist()])[0, 0] == pytest.approx(p[0], rel=1e-5)


def test_a_dry_run_writes_nothing(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    lines = dry_run(a_run(tmp_path / "out", ranks=2))
    assert not (tmp_path / "out").exists()
    assert lines[0] == "model dlrm: 257 dense parameters, and 5,504 in 4 tables of 21 to 503 rows (21.5 KiB)"
    assert lines[2].startswith("plan ")
    assert "by rank: " in lines[3]
    assert "made now, by torchrec)" in dry_run(a_run(tmp_path / "out", ranks=2, plan="torchrec"))[2]
    with pytest.raises(recsmith.UsageError, match="feature 'e', which the data does not have; known: a, b, c, d"):
        dry_run(a_run(tmp_path, model=RunModel(tables=(RunTable(name="e", num_embeddings=9),))))


def weightless(collection: Any, dense: int) -> Any:
    """A model of one's own, whose logits are not finite from its third batch on."""
    import torch

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.last = collection, torch.nn.Linear(dense, 1)
            self.batches = 0

        def forward(self, values: torch.Tensor, features: Any) -> torch.Tensor:
            self.batches += self.training
            found = sum(each.sum(1, keepdim=True) for each in self.tables(features).to_dict().values())
            return (self.last(values) + found) * (float("nan") if self.batches > 4 else 1.0)

    return Mine()


def test_a_loss_that_is_not_finite_ends_training_with_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = a_run(tmp_path / "out", model=RunModel(name="test_jobs:weightless", embedding_dim=DIM), metrics=RunMetrics())
    with pytest.raises(RecSmithError, match="loss of step 4 is not finite"):
        train(run, settings=("checkpoint.every=1",))
    (file,) = (tmp_path / "out").glob("broken-batch-step-4-*.npz")
    with np.load(file) as kept:
        assert kept["labels"].shape == (BATCH, 1)
        assert kept["values/a"].shape == (BATCH,)
    newest = sorted(folder.name for folder in (tmp_path / "out/checkpoints").iterdir())[-1]
    assert newest == "step-00000003"
    with pytest.raises(CorruptFile, match="is of another model"):  # another model meets this folder's checkpoints
        train(a_run(tmp_path / "out", steps=5))


def test_ids_cannot_cross_ranks_ahead_where_code_around_the_tables_iterates_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = a_run(tmp_path / "out", model=RunModel(name="test_jobs:weightless", embedding_dim=DIM), steps=1)
    with pytest.raises(UsageError, match=r"cannot be followed by torch\.fx \(.*\); write pipeline: base"):
        train(run, settings=("pipeline=sparse_dist",))


def test_a_run_captures_some_of_its_steps(tmp_path: Path):
    run = a_run(tmp_path / "out", steps=21, capture=str(tmp_path / "trace"), checkpoint=None)
    train(run)
    captured = load_capture(tmp_path / "trace")
    terms = {event.term for _, event in captured.graph.kernels()}
    assert {"gemm", "embedding_forward", "embedding_backward", "interaction"} <= terms
    assert {each.name for each in captured.graph.collectives} == {"all_reduce"}
