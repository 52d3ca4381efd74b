"""Jobs of a model of one's own, which reads features and sequences in the order in which tables give them, with batches
that grow: losses of the unsharded model, the same bits when resumed."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.systems import needs_systems
from training.test_jobs import from_step, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import Infeasible, PlanMismatch, UsageError
from recsmith.training import (
    BatchChange,
    Checkpointing,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    RunTable,
    SparseOptimizer,
    evaluate,
    train,
)  # fmt: skip

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, EVERY, DIM, LONGEST = 12, 4, 8, 6
FIRST, LATER, CHANGE = 48, 96, 5  # samples of all ranks in a step, and the steps before it changes
KINDS = {  # TorchRec gives features by type, so the pooled ones as pooled, last, item and the others as t, u, c, r
    "pooled": "row_wise", "item": "table_wise", "last": "row_wise",
    "t": "table_wise", "c": "column_wise", "r": "row_wise", "u": "table_wise",
}  # fmt: skip
SIZES = {"pooled": 300, "item": 40, "last": 77, "t": 64, "c": 90, "r": 503, "u": 31}
POOLED = ("pooled", "item", "last")


def features() -> list[dict[str, Any]]:
    words = {"pooling_factor": 2, "lengths": "poisson"}
    return [{"name": name, "num_embeddings": size, **words} for name, size in SIZES.items()]


def a_table(name: str, **words: Any) -> RunTable:
    pooling = "sum" if name in POOLED else "none"
    return RunTable(**{"name": name, "num_embeddings": SIZES[name], "pooling": pooling, **words})


def attending(tables: Any, dense: int, *, sequences: Any) -> Any:
    """A model of one's own: what is pooled side by side, and sequences whose rows are weighted by their own score."""
    import torch

    class Attending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables, self.sequences = tables, sequences
            self.score, self.last = torch.nn.Linear(DIM, 1), torch.nn.Linear(dense + len(SIZES) * DIM, 1)

        def forward(self, values: torch.Tensor, features: Any) -> torch.Tensor:
            parts = [values, self.tables(features).values()]
            for rows in self.sequences(features).values():
                padded = rows.to_padded_dense(LONGEST)
                parts.append((padded * self.score(padded).sigmoid()).sum(1))
            return self.last(torch.cat(parts, dim=1))

    return Attending()


def a_plan(folder: Path, cluster: str = "cpu:2", *, pooling: str = "none", **kinds: str) -> str:
    """Each table by another sharding type. pooling: of those that are sequences. kinds: other types of some."""
    tables = [
        {
            "name": name, "num_embeddings": size, "embedding_dim": DIM, "pooling_factor": 2,
            "pooling": "sum" if name in POOLED else pooling,
        }
        for name, size in SIZES.items()
    ]  # fmt: skip
    workload = {"schema": "recsmith/workload/1", "batch_size": LATER // 2, "optimizer": "adagrad", "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in {**KINDS, **kinds}.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", cluster, constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def a_run(output: Path, **words: Any) -> Run:
    data = {"format": "generator", "seed": 1, "dense": 2, "features": features()}
    model = RunModel(
        name="test_sequence_jobs:attending", embedding_dim=DIM, tables=tuple(a_table(name) for name in SIZES)
    )
    values: dict[str, Any] = {
        "data": RunData(
            train={**data, "num_samples": 20_000}, test={**data, "first_sample": 20_000, "num_samples": 101},
            global_batch_size=FIRST, batch_changes=(BatchChange(after_steps=CHANGE, size=LATER),),
        ),
        "model": model,
        "output": str(output),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }  # fmt: skip
    return Run(**{**values, **words})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run on two ranks, each table sharded by another type, and what came of it."""
    folder = tmp_path_factory.mktemp("sequences")
    run = a_run(folder / "out", plan=a_plan(folder), ranks=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        return run, train(run)


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of this file, for ranks too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_losses_are_those_of_the_unsharded_model(trained: tuple[Run, dict[str, Any]]):
    run, _ = trained
    expected = unsharded_losses(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert len(set(expected)) == STEPS


def test_a_run_that_looks_equal_ids_up_once_has_the_losses_of_the_unsharded_model(tmp_path: Path):
    run = a_run(tmp_path / "out", ranks=2)
    run = replace(run, model=replace(run.model, index_dedup="on"))
    train(run)
    saved = sorted(Path(run.output).rglob("plan.json"))
    assert recsmith.load_plan(saved[-1]).workload.index_dedup == "on"
    assert losses(Path(run.output)) == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)


@needs_systems("halves")
def test_sequence_tables_train_in_halves_and_go_on_with_the_same_bits(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path
):
    sgd = RunOptimizers(sparse=SparseOptimizer(name="sgd", learning_rate=0.05))
    run = a_run(tmp_path / "out", plan=trained[0].plan, ranks=2, rows="split", optimizers=sgd)
    result = train(run)
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    assert (again / "model/weights.safetensors").read_bytes() == Path(
        run.output, "model/weights.safetensors"
    ).read_bytes()
    exact = unsharded_losses(replace(run, rows="device"), STEPS)
    assert losses(Path(run.output)) == pytest.approx(exact, rel=1e-3)
    assert losses(Path(run.output)) != pytest.approx(exact, rel=1e-6)  # lookups are of bf16


@needs_systems("tiers")
def test_sequence_tables_train_behind_caches_as_in_memory(tmp_path: Path):
    kinds = dict.fromkeys(("c", "u"), "table_wise")
    plan = a_plan(tmp_path, **kinds)
    plain = a_run(tmp_path / "plain", plan=plan, ranks=2)
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.3}
    tiered = replace(plain, output=str(tmp_path / "tiered"), rows=rows)
    train(plain)
    train(tiered, settings=(f"steps={EVERY}",))
    result = train(tiered)  # goes on from its checkpoint
    assert result["step"] == STEPS
    assert 0 < result["hit_share"] < 1
    weights = "model/weights.safetensors"
    assert Path(tiered.output, weights).read_bytes() == Path(plain.output, weights).read_bytes()


def test_batches_grow_when_the_run_says_so(trained: tuple[Run, dict[str, Any]]):
    run, _ = trained
    lines = [json.loads(line) for line in Path(run.output, "log.jsonl").read_text().splitlines()]
    samples = [line["samples"] for line in lines if line["event"] == "train"]
    assert samples == [FIRST] * CHANGE + [LATER] * (STEPS - CHANGE)
    newest = json.loads(Path(run.output, f"checkpoints/step-{STEPS:08d}/progress.json").read_text())
    assert newest["position"]["used"] == sum(samples)


def test_a_job_resumed_before_its_batches_grow_ends_with_the_same_bits(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path
):
    run, result = trained
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == Path(run.output, weights).read_bytes()
    assert losses(again) == losses(Path(run.output))


def test_another_number_of_ranks_goes_on_with_grown_batches_and_the_same_losses(
    trained: tuple[Run, dict[str, Any]], tmp_path: Path
):
    run, _ = trained
    elsewhere = from_step(run, 2 * EVERY, tmp_path / "elsewhere")
    train(run, settings=(f"output={elsewhere}", "ranks=3", "plan=auto"))
    assert losses(elsewhere) == pytest.approx(losses(Path(run.output)), rel=1e-6)


def test_the_exported_model_has_the_same_scores_under_another_plan(trained: tuple[Run, dict[str, Any]]):
    run, result = trained
    scores = evaluate(run.output, ranks=1)
    assert scores.logloss == pytest.approx(result["test"]["logloss"], rel=1e-6)
    assert scores.auc == pytest.approx(result["test"]["auc"], abs=1e-3)


def test_the_exported_model_predicts_what_was_scored(trained: tuple[Run, dict[str, Any]]):
    import numpy as np

    from recsmith.data import open_dataset, spec_from_raw
    from recsmith.training import load_model

    run, result = trained
    model = load_model(Path(run.output) / "model")
    test = open_dataset(spec_from_raw(dict(run.data.test), "test"))
    with test.batches(rank=0, world_size=1, batch_size=101, seed=0, shuffle=False) as batches:
        batch = next(batches)
    p, labels = model.predict(batch)[:, 0].astype(np.float64), batch.labels[:, 0]
    loss = -np.mean(np.where(labels > 0.5, np.log(p), np.log(1 - p)))
    assert result["test"]["logloss"] == pytest.approx(loss, rel=1e-5)
    assert {name: model.table(name).shape for name in SIZES} == {name: (size, DIM) for name, size in SIZES.items()}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RunModel(embedding_dim=DIM, tables=(a_table("t"),)), "dlrm pools all its tables, and 't' has pooling none"),
        (
            RunModel(name="test_sequence_jobs:attending", tables=(a_table("t"), a_table("c", embedding_dim=4))),
            "'t' and 'c' have pooling none and 16 and 4 columns",
        ),
    ],
)  # fmt: skip
def test_sequences_that_cannot_be_trained_are_refused(tmp_path: Path, model: RunModel, words: str):
    from recsmith.training.job.models import build_task
    from recsmith.training.sources import open_data

    schema = open_data(a_run(tmp_path).data.train, "data.train").schema
    with pytest.raises(UsageError, match=words):
        build_task(model, schema, 0)


def test_plans_that_would_pool_a_sequence_table_are_refused(tmp_path: Path):
    from recsmith.training.launch.launching import dry_run

    with pytest.raises(PlanMismatch, match="is a pooled one in the plan and a sequence table in the model"):
        dry_run(a_run(tmp_path / "out", plan=a_plan(tmp_path, pooling="sum"), ranks=2))
    with pytest.raises(Infeasible, match="data_parallel on cpu pools sequence tables"):
        a_plan(tmp_path, t="data_parallel")
    with pytest.raises(UsageError, match="'t' has pooling none and is data_parallel in the plan"):
        dry_run(a_run(tmp_path / "out", plan=a_plan(tmp_path, "h100:2", t="data_parallel"), ranks=2))
