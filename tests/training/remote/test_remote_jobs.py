"""Real jobs whose tables are on servers: the losses of the planned job, its checkpoints, and what is counted."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.test_jobs import BATCH, DIM, EVERY, SIZES, STEPS, a_run, from_step, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.files import dump_json
from recsmith.training import Run, RunOptimizers, SparseOptimizer, train
from recsmith.training.remote.settings import RunRemote

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
KINDS = {"a": "table_wise", "b": "row_wise", "c": "table_wise", "d": "column_wise"}


def plan_of_servers(folder: Path, optimizer: str) -> str:
    """A plan for two servers: a table in rows, and one in columns."""
    tables = [{"name": n, "num_embeddings": s, "embedding_dim": DIM, "pooling_factor": 1} for n, s in SIZES.items()]
    workload = {"schema": "recsmith/workload/1", "batch_size": BATCH // 2, "optimizer": optimizer, "tables": tables}
    rules = [{"tables": name, "sharding_types": [kind]} for name, kind in KINDS.items()]
    (folder / "tables.json").write_text(dump_json(workload))
    (folder / "rules.json").write_text(dump_json({"schema": "recsmith/constraints/1", "rules": rules}))
    made = recsmith.plan(folder / "tables.json", "cpu:2", constraints=folder / "rules.json", planner="size_greedy").plan
    recsmith.save_plan(made, folder / "plan.json")
    return str(folder / "plan.json")


def optimizers(name: Any) -> RunOptimizers:
    return RunOptimizers(sparse=SparseOptimizer(name=name, learning_rate=0.05))


on_ray = pytest.param("ray", marks=[
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"), pytest.mark.filterwarnings("ignore"),
])  # fmt: skip


@pytest.fixture(scope="module", params=["rpc", on_ray])
def trained(tmp_path_factory: pytest.TempPathFactory, request: Any) -> tuple[Run, dict[str, Any]]:
    """A run of two trainers and two servers, and what came of it."""
    folder = tmp_path_factory.mktemp("remote")
    run = a_run(
        folder / "out", plan=plan_of_servers(folder, "adagrad"), ranks=2, optimizers=optimizers("adagrad"),
        remote=RunRemote(servers=2, backend=request.param),
    )  # fmt: skip
    return run, train(run)


def test_losses_and_weights_are_those_of_the_planned_job(trained: tuple[Run, dict[str, Any]], tmp_path: Path) -> None:
    run, result = trained
    expected = unsharded_losses(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert result["complete"]
    counts = result["remote"]
    assert counts["steps"] == STEPS
    needed = 2 * counts["row_bytes"] + counts["id_bytes"]
    assert counts["row_bytes"] == counts["rows"] * DIM * 4
    assert needed < counts["sent_bytes"] + counts["received_bytes"]

    # from a checkpoint of servers, the planned job trains on as if it had trained all along
    again = replace(run, remote=None, output=str(from_step(run, EVERY, tmp_path / "planned")))
    done = train(again)
    assert losses(Path(again.output)) == pytest.approx(expected, rel=1e-6)
    assert done["test"]["logloss"] == pytest.approx(result["test"]["logloss"], rel=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_servers_go_on_from_a_planned_job(optimizer: str, tmp_path: Path) -> None:
    warm = replace(optimizers(optimizer), warmup_steps=3)
    planned = a_run(tmp_path / "planned", ranks=1, optimizers=warm)
    train(planned)
    remote = RunRemote(servers=1)
    run = replace(planned, remote=remote, output=str(from_step(planned, EVERY, tmp_path / "remote")))
    train(run)
    assert losses(Path(run.output)) == pytest.approx(losses(Path(planned.output)), rel=1e-6)
