"""Real jobs whose tables are on servers: the losses of the planned job, its checkpoints, and what is counted."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.test_jobs import BATCH, DIM, EVERY, SIZES, STEPS, a_run, from_step, losses
from training.unsharded import unsharded_losses

import recsmith
from recsmith.errors import RecSmithError, UsageError
from recsmith.files import dump_json
from recsmith.training import Checkpointing, Run, RunOptimizers, SparseOptimizer, train
from recsmith.training.remote.settings import RunRemote

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
JOINED_STEPS = 3000  # of a job that another trainer joins: it needs seconds to start
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


def kill_when(output: Path, lines: int, name: str) -> None:
    """Kill a trainer of this process's job, or a server, once so many lines of training are in the log."""
    log, parent = output / "log.jsonl", str(os.getpid())
    until = time.monotonic() + 300
    while time.monotonic() < until and (not log.exists() or log.read_text().count('"train"') < lines):
        time.sleep(0.02)
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            mine = file.read_text().rpartition(")")[2].split()[1] == parent
            if mine and f"/{name}\0" in file.with_name("cmdline").read_text():
                os.kill(int(file.parent.name), signal.SIGKILL)


def killed(run: Run, lines: int, name: str) -> tuple[dict[str, Any], list[str]]:
    """What came of a run of which a process was killed, and what it said."""
    said = list[str]()
    killer = threading.Thread(target=kill_when, args=(Path(run.output), lines, name))
    killer.start()
    try:
        return train(run, on_progress=lambda message: said.append(message.get("note", ""))), said
    finally:
        killer.join()


on_ray = pytest.param("ray", marks=[
    pytest.mark.soak, pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray"),
    pytest.mark.filterwarnings("ignore"),
])  # fmt: skip


@pytest.fixture(scope="module", params=["rpc", on_ray])
def trained(tmp_path_factory: pytest.TempPathFactory, request: Any) -> tuple[Run, dict[str, Any], list[str]]:
    """A run of two servers and two trainers, one of which is killed on the way, what came of it, and what it said."""
    folder = tmp_path_factory.mktemp("remote")
    run = a_run(
        folder / "out", plan=plan_of_servers(folder, "adagrad"), ranks=2, optimizers=optimizers("adagrad"),
        remote=RunRemote(servers=2, backend=request.param, timeout_s=10),
    )  # fmt: skip
    return run, *killed(run, EVERY + 1, "trainer-1")


def test_losses_are_those_of_the_planned_job(trained: tuple[Run, dict[str, Any], list[str]]) -> None:
    """No sample is left out, and no step counts twice, though a trainer was killed."""
    run, result, said = trained
    assert "trainer 1 has ended (by SIGKILL); the others go on" in said
    expected = unsharded_losses(run, STEPS)
    assert losses(Path(run.output)) == pytest.approx(expected, rel=1e-6)
    assert result["complete"]
    counts = result["remote"]
    assert STEPS <= counts["steps"] <= STEPS + 1  # one was repeated
    assert counts["row_bytes"] == counts["rows"] * DIM * 4
    assert 2 * counts["row_bytes"] + counts["id_bytes"] < counts["sent_bytes"] + counts["received_bytes"]


@pytest.mark.soak
def test_a_planned_job_goes_on_from_servers(trained: tuple[Run, dict[str, Any], list[str]], tmp_path: Path) -> None:
    """As if it had trained all along."""
    run, result, _ = trained
    again = replace(run, remote=None, output=str(from_step(run, EVERY, tmp_path / "planned")))
    done = train(again)
    assert losses(Path(again.output)) == pytest.approx(losses(Path(run.output)), rel=1e-6)
    assert done["test"]["logloss"] == pytest.approx(result["test"]["logloss"], rel=1e-6)


@pytest.mark.soak
def test_a_server_that_dies_ends_the_job_in_a_sentence(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out", ranks=2, steps=60, remote=RunRemote(servers=2, timeout_s=10))
    with pytest.raises(RecSmithError, match=r"server 1 (has ended \(by SIGKILL\)|cannot be reached)"):
        killed(run, EVERY + 2, "server-1")
    found = train(run)
    assert found["complete"]
    assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, 60), rel=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_trainer_joins(staleness: int, tmp_path: Path) -> None:
    remote = RunRemote(servers=1, staleness=staleness, timeout_s=20)
    run = a_run(
        tmp_path / "out", ranks=1, steps=JOINED_STEPS, remote=remote, optimizers=optimizers("adagrad"),
        checkpoint=Checkpointing(every=1000),
    )  # fmt: skip
    with pytest.raises(UsageError, match="no job with servers runs in"):
        train(run, join=True)
    results = list[dict[str, Any]]()

    def join() -> None:
        while not (tmp_path / "out/remote.json").exists() or not (tmp_path / "out/log.jsonl").exists():
            time.sleep(0.05)
        assert (tmp_path / "out/remote.json").stat().st_mode & 0o777 == 0o600
        results.append(train(run, join=True))

    newcomer = threading.Thread(target=join)
    newcomer.start()
    result = train(run)
    newcomer.join()
    assert result["step"] == results[0]["step"] == JOINED_STEPS
    assert results[0]["remote"]["steps"] > 0
    if not staleness:
        assert losses(tmp_path / "out") == pytest.approx(unsharded_losses(run, JOINED_STEPS), rel=1e-5)
    assert not (tmp_path / "out/remote.json").exists()


@pytest.mark.soak
def test_batches_are_leased_within_the_bound_though_a_trainer_dies(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out", ranks=2, steps=60, remote=RunRemote(servers=2, staleness=2, timeout_s=8))
    result, said = killed(run, 10, "trainer-1")
    told = result["remote"]
    assert "trainer 1 has ended (by SIGKILL); the others go on" in said
    assert told["batches"] == 120
    assert told["repeated"] <= 1
    assert told["lost"] == ["trainer-1"]
    assert max(map(int, told["lags"])) <= 2
    assert sum(told["lags"].values()) == 120 + told["repeated"]
    assert sorted(each.name for each in (tmp_path / "out/checkpoints").iterdir())[-1] == "step-00000060"
    again = replace(run, remote=None, steps=64)
    assert train(again)["step"] == 64


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
