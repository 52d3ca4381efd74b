"""One feature in two tables: losses of the unsharded model under any sharding, bits when resumed, refusals."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.test_jobs import from_step, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import UsageError
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
)

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, EVERY, BATCH = 6, 3, 48
USER, ITEM = 40, 25
KINDS = {"user": "row_wise", "user_wide": "table_wise", "item": "column_wise", "item_wide": "row_wise"}


def data(samples: int = 480) -> dict[str, Any]:
    sizes = {"user": USER, "item": ITEM}
    features = [{"name": name, "num_embeddings": rows, "pooling_factor": 2} for name, rows in sizes.items()]
    return {"format": "generator", "seed": 1, "dense": 2, "features": features, "num_samples": samples}


def tables(columns: int = 8, **words: Any) -> tuple[RunTable, ...]:
    rows = {"user": USER, "user_wide": USER + 7, "item": ITEM, "item_wide": ITEM}
    return tuple(
        RunTable(
            name=name, num_embeddings=rows[name], embedding_dim=8 if name in ("user", "item") else columns,
            features=(name.partition("_")[0],), **words,
        )
        for name in rows
    )  # fmt: skip


def a_plan(folder: Path, **kinds: str) -> str:
    """Each table by another sharding type. kinds: other types of some."""
    made = [
        {"name": each.name, "num_embeddings": each.num_embeddings, "embedding_dim": each.embedding_dim,
         "features": [{"name": each.features[0], "pooling_factor": 2}]}
        for each in tables(4)
    ]  # fmt: skip
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": made}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in {**KINDS, **kinds}.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    plan = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(plan, folder / "plan.json")
    return str(folder / "plan.json")


def a_run(folder: Path, model: RunModel, **words: Any) -> Run:
    values: dict[str, Any] = {
        "data": RunData(train=data(), test=data(101), global_batch_size=BATCH),
        "model": model,
        "output": str(folder / "out"),
        "steps": STEPS,
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05)),
        "checkpoint": Checkpointing(every=EVERY, keep=3),
        "metrics": RunMetrics(every=1),
    }
    return Run(**{**values, **words})


def test_each_table_of_a_feature_by_its_own_sharding_type(tmp_path: Path):
    run = a_run(tmp_path, RunModel(name="wide_deep", tables=tables(4)), plan=a_plan(tmp_path), ranks=2)
    result = train(run)
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)
    again = from_step(run, EVERY, tmp_path / "again")
    assert train(run, settings=(f"output={again}",))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == (tmp_path / "out" / weights).read_bytes()
    check_served(tmp_path / "out/model")


def check_served(folder: Path) -> None:
    """The exported model says what its formula makes of its weights; ids are those of the smallest table."""
    import torch

    from recsmith.training import load_model

    model = load_model(folder)
    ids, dense = {"user": [[3, 5], []], "item": [[1], [24]]}, [[0.5, 1.0], [0.0, -1.0]]
    body: Any = model.task.model.body

    def pooled(name: str) -> torch.Tensor:
        bags = ids[name.partition("_")[0]]
        return torch.stack([torch.from_numpy(model.table(name)[bag].sum(0)) for bag in bags])

    with torch.no_grad():
        wide = body.wide(torch.cat([pooled("user_wide"), pooled("item_wide")], dim=1))
        deep = body.deep(torch.cat([torch.tensor(dense), pooled("user"), pooled("item")], dim=1))
        expected = (wide + deep).sigmoid().numpy()
    np.testing.assert_allclose(model(ids, dense), expected, rtol=1e-6)
    with pytest.raises(UsageError, match=f"feature 'user' has id {USER}, and its table {USER} rows"):
        model({"user": [[USER]], "item": [[1]]}, [[0.0, 0.0]])


def test_tables_are_made_for_a_wide_and_deep_model_where_a_run_names_none():
    from recsmith.training.job.models import build_task
    from recsmith.training.sources import open_source
    from recsmith.training.tables.plain import configs_of, features_of

    run = a_run(Path("nowhere"), RunModel(name="wide_deep", embedding_dim=8))
    task = build_task(run.model, open_source(run).schema, 0)
    found = {each.name: (each.embedding_dim, each.feature_names) for each in configs_of(task)}
    assert found == {
        "user": (8, ["user"]), "item": (8, ["item"]), "user_wide": (4, ["user"]), "item_wide": (4, ["item"]),
    }  # fmt: skip
    assert features_of(task).names == ("user", "item")


@pytest.mark.parametrize("name", ["dlrm", "dlrm_dcn", "deepfm", "mmoe", "two_tower"])
def test_models_read_a_feature_of_each_table(name: str):
    """Each of its rows has a gradient."""
    from recsmith.training.batches import training_batches
    from recsmith.training.job.models import build_task
    from recsmith.training.sources import open_source
    from recsmith.training.tables.plain import features_of

    more: dict[str, Any] = {"loss": "softmax", "arguments": {"correct": False}} if name == "two_tower" else {}
    run = a_run(Path("nowhere"), RunModel(name=name, embedding_dim=8, tables=tables(), **more))
    single = {**data(), "features": [{**each, "pooling_factor": 1} for each in data()["features"]]}
    run = replace(run, data=replace(run.data, train=single))
    source = open_source(run)
    task = build_task(run.model, source.schema, 0, tables_on="cpu")
    batch = next(training_batches(source, run.data.batch_sizes(1), features_of(task), rank=0, ranks=1))
    task(batch)[0].backward()
    found = {key: each.grad for key, each in task.named_parameters() if "embedding_bags" in key}
    assert len(found) == 4
    assert all(grad is not None and bool((grad.abs().sum(1) > 0).any()) for grad in found.values())


def test_a_feature_may_be_pooled_in_one_table_and_a_sequence_in_another(tmp_path: Path):
    both = (
        RunTable(name="item", num_embeddings=ITEM, features=("item", "user"), pooling="none"),
        RunTable(name="item_wide", num_embeddings=ITEM, features=("item",)),
    )
    arguments = {"history": ["user"], "target": ["item"]}
    model = RunModel(name="din", embedding_dim=8, tables=both, arguments=arguments)
    few = data()
    few["features"] = [
        {"name": "user", "num_embeddings": ITEM, "pooling_factor": 2},
        {"name": "item", "num_embeddings": ITEM, "pooling_factor": 1},
    ]
    run = a_run(tmp_path, model, ranks=2, data=RunData(train=few, global_batch_size=BATCH))
    train(run)
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, STEPS), rel=1e-6)


def refused(run: Run) -> str:
    from recsmith.training.launch.launching import dry_run

    with pytest.raises(UsageError) as error:
        dry_run(run)
    return str(error.value)


def test_what_cannot_have_two_tables_says_so(tmp_path: Path):
    def told(tables: Sequence[RunTable], name: str = "wide_deep", **words: Any) -> str:
        return refused(a_run(tmp_path, RunModel(name=name, embedding_dim=8, tables=tuple(tables), **words)))

    plain = tables()
    twice = (replace(plain[0], features=("user", "user")), *plain[1:])
    assert told(twice) == "table 'user' names feature 'user' twice; name it once"
    assert "wide_deep has no table of weights: its tables are user, item" in told((plain[0], plain[2]))
    assert "wide_deep has no table of vectors" in told((plain[1], plain[3]))
    named = (replace(plain[0], name="user_wide"), replace(plain[2], features=("item",)))
    assert "wide_deep has no" not in told((*named, replace(plain[3], num_embeddings=3)))
    rows = tuple(replace(each, pooling="none") for each in plain[:2])
    arguments = {"history": ["item"], "target": ["user"]}
    assert "'user' and 'user_wide' have pooling none and look it up" in told(rows, "din", arguments=arguments)
    with pytest.raises(UsageError, match=r"wide_columns is 3; it must be a positive multiple of 4"):
        RunModel(name="wide_deep", arguments={"wide_columns": 3})
