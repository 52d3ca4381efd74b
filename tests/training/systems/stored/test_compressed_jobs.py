"""Real jobs whose tables are stored smaller: sharding changes no loss, and what is exported has every row."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.test_jobs import BATCH, DIM, a_run, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.embeddings import CompressionRule, IdMap, save_maps
from recsmith.embeddings.workloads import compress
from recsmith.errors import UsageError
from recsmith.training import Run, RunData, RunModel, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
SIZES = {"a": 100, "b": 503, "c": 21, "d": 64, "e": 90, "f": 80, "g": 70, "h": 60}
STEPS, MORE = 8, 4
KINDS = {
    "a@*": "row_wise",
    "b@partition0": "data_parallel",
    "b@partition1": "row_wise",
    "c@*": "table_wise",
    "d@*": "table_wise",
    "e@*": "column_wise",
    "f@*": "table_wise",
    "g@*": "row_wise",
    "h@*": "table_wise",
}


def rules(maps: Path) -> tuple[CompressionRule, ...]:
    """A method for each table."""
    return (
        CompressionRule(method="learned_hash", tables="a", above_rows=0, factor=4, maps=str(maps)),
        CompressionRule(method="quotient_remainder", tables="b", above_rows=0, factor=8),
        CompressionRule(method="mixed_radix", tables="c", above_rows=0, operation="concat"),
        CompressionRule(
            method="mixed_dimension", tables="d", above_rows=0, shares=(0.25, 0.25, 0.5), widths=(8, 4, 1),
            maps=str(maps),
        ),
        CompressionRule(method="hash", tables="e", above_rows=0, factor=3),
        CompressionRule(method="chinese_remainder", tables="f", above_rows=0, operation="add"),
        CompressionRule(method="path_based", tables="g", above_rows=0, factor=5, hidden=7),
        CompressionRule(method="quotient_remainder", tables="h", above_rows=0, factor=4, operation="generate"),
    )  # fmt: skip


def plan_of(folder: Path, made: tuple[CompressionRule, ...]) -> str:
    """The physical tables, by different sharding types."""
    tables = [{"name": n, "num_embeddings": s, "embedding_dim": DIM, "pooling_factor": 1} for n, s in SIZES.items()]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": tables}
    (folder / "tables.json").write_text(json.dumps(workload))
    limits = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": limits}))
    small = compress(recsmith.load_workload(folder / "tables.json"), made).workload
    plan = recsmith.plan(small, "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(plan, folder / "plan.json")
    return str(folder / "plan.json")


def data(samples: int) -> dict[str, Any]:
    features = [{"name": name, "num_embeddings": size} for name, size in SIZES.items()]
    return {"format": "generator", "num_samples": samples, "features": features, "dense": 2, "seed": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    """A run whose tables are all stored smaller, on two ranks, then on one, and on two again; and what came of it."""
    folder = tmp_path_factory.mktemp("compressed")
    rng = np.random.default_rng(0)
    maps = {
        "a": IdMap(numbers=rng.integers(0, 25, SIZES["a"]).astype(np.int32)),
        "d": IdMap(numbers=rng.permutation(SIZES["d"]).astype(np.int32)),
    }
    save_maps(maps, folder / "maps.safetensors")
    made = rules(folder / "maps.safetensors")
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), compression=made)
    values = RunData(train=data(20_000), test=data(101), global_batch_size=BATCH)
    run = a_run(folder / "out", data=values, model=model, plan=plan_of(folder, made), ranks=2, steps=STEPS)
    train(run)
    train(replace(run, ranks=1, plan="auto", steps=STEPS + MORE))
    return replace(run, steps=STEPS + 2 * MORE), train(replace(run, steps=STEPS + 2 * MORE))


def test_losses_are_those_of_the_unsharded_model_whatever_the_ranks(trained: tuple[Run, dict[str, Any]]):
    run, _ = trained
    expected = unsharded_losses(run, STEPS + 2 * MORE)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert expected[-1] < expected[0]


def test_the_exported_model_needs_no_map_of_the_run_and_has_all_rows(trained: tuple[Run, dict[str, Any]]):
    from recsmith.training import load_model

    run, _ = trained
    model = load_model(Path(run.output) / "model")
    for name, rows in SIZES.items():
        vectors = model.table(name)
        assert vectors.shape == (rows, DIM * (2 if name == "h" else 1))
        assert np.isfinite(vectors).all()
        if name not in "eg":  # those of a hash meet, and networks may give two ids zeros
            assert len(np.unique(vectors, axis=0)) == (25 if name == "a" else rows)
    with pytest.raises(UsageError, match="there is no table 'z'"):
        model.table("z")


def test_a_map_that_changed_is_not_resumed_with(trained: tuple[Run, dict[str, Any]]):
    from recsmith.training.systems.stored.kept_maps import check_maps

    run, _ = trained
    check_maps(run.model, Path(run.output))
    other = Path(run.output).parent / "other.safetensors"
    save_maps(
        {"a": IdMap(numbers=np.zeros(SIZES["a"], np.int32)), "d": IdMap(numbers=np.arange(64, dtype=np.int32))}, other
    )
    changed = RunModel(embedding_dim=DIM, compression=rules(other))
    with pytest.raises(UsageError, match="has changed since this run began"):
        check_maps(changed, Path(run.output))
