"""A job goes on under another plan from the memory of its ranks: the same losses, and as many bytes as plans say."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training import test_grouped_jobs as grouped

import recsmith
from recsmith.plans.diff import moved_bytes
from recsmith.training import Run, RunOptimizers, SparseOptimizer, train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
TESTS = Path(__file__).parents[2]
STEPS, BATCH = 20, 48
ADAGRAD = RunOptimizers(sparse=SparseOptimizer(name="adagrad", learning_rate=0.05))


def plan_for(folder: Path, kinds: dict[str, str], cluster: Any = "cpu:2", planner: str = "size_greedy") -> str:
    tables = [
        {"name": n, "num_embeddings": s, "embedding_dim": grouped.DIM, "pooling_factor": 1}
        for n, s in grouped.SIZES.items()
    ]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": "adagrad", "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in kinds.items()]
    (folder / "tables.json").write_text(json.dumps(workload))
    (folder / "rules.json").write_text(json.dumps({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", cluster, constraints=folder / "rules.json", planner=planner).plan
    recsmith.save_plan(made, folder / f"{made.digest[:8]}.json")
    return str(folder / f"{made.digest[:8]}.json")


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [each for each in found if each["event"] == kind]


def moved(before: str, after: str) -> int:
    old, new = recsmith.load_plan(before), recsmith.load_plan(after)
    found = moved_bytes(old, new.placements, new.workload, new.cluster)
    replicas = new.cluster.replication.replicas if new.cluster.replication else 1
    return replicas * sum(size for shards in found.values() for _, size in shards)


def check_moved(run: Run, before: str, after: str, folder: Path) -> None:
    """Train with the plan before and then that after, and with the one before alone: all the same but the bytes."""
    watcher = {"name": "support.replanned:OtherPlan", "plan": after}
    live = replace(run, output=str(folder / "live"), watchers=(watcher,), plan=before)
    plain = replace(run, output=str(folder / "plain"), plan=before)
    train(live)
    train(plain)
    (told,) = events(folder / "live", "moved")
    assert told["step"] == 16
    assert told["weights_bytes"] == moved(before, after) > 0
    assert told["state_bytes"] == told["weights_bytes"]  # adagrad keeps a number a weight
    assert recsmith.load_plan(folder / "live/plan.json").placements == recsmith.load_plan(after).placements
    losses = [[each["logloss"] for each in events(folder / name, "train")] for name in ("live", "plain")]
    assert len(losses[0]) == STEPS
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    here, there = (grouped.weights(folder / name) for name in ("live", "plain"))
    for name, whole in there.items():
        assert np.abs(here[name] - whole).max() <= 1e-6 * np.abs(whole).max(), name  # false of NaN
    assert not (folder / "live/checkpoints").exists() or not list((folder / "live/checkpoints").iterdir())


def test_shards_of_all_kinds_move_from_memory_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)
    before = plan_for(tmp_path, {"a": "table_wise", "b": "row_wise", "c": "data_parallel", "d": "column_wise"})
    after = plan_for(tmp_path, {"a": "row_wise", "b": "column_wise", "c": "data_parallel", "d": "table_wise"})
    run = grouped.a_run(tmp_path / "out", steps=STEPS, optimizers=ADAGRAD, checkpoint=None)
    check_moved(run, before, after, tmp_path)


def test_shards_of_several_groups_move_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)
    before = grouped.grouped_plan(tmp_path, optimizer="adagrad")
    kinds = {"a": "row_wise", "b": "column_wise", "c": "data_parallel", "d": "table_wise"}
    after = grouped.grouped_plan(tmp_path, optimizer="adagrad", kinds=kinds)
    run = grouped.a_run(tmp_path / "out", steps=STEPS, optimizers=ADAGRAD, checkpoint=None)
    check_moved(run, before, after, tmp_path)
