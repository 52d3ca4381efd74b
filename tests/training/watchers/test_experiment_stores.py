"""MLflow and Weights & Biases: what log.jsonl says by step, in one run over a restart; real packages, or skipped."""

import json
import shutil
import struct
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from training.test_jobs import a_run, from_step

from recsmith.errors import MissingExtra
from recsmith.training import train

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, EVERY = 12, 4  # of test_jobs
BLOCK = 2**15


class Failing:
    """A watcher that cannot write."""

    every = 1

    def hear(self, line: Any) -> None:
        raise OSError(f"the store of {line.event} is full")

    def look(self, seen: Any) -> None: ...
    def to_raw(self) -> None: ...
    def from_raw(self, raw: Any) -> None: ...
    def close(self, error: object) -> None: ...


def trained_twice(folder: Path, watcher: dict[str, Any]) -> tuple[Path, Path]:
    """Outputs of a run, and of one that goes on from its step 4."""
    run = a_run(folder / "out", ranks=2, watchers=(watcher,))
    train(run)
    again = from_step(run, EVERY, folder / "again")
    shutil.rmtree(again / "wandb", ignore_errors=True)  # a copy of the first job's
    train(run, settings=(f"output={again}",))
    return folder / "out", again


def told(output: Path, event: str, name: str) -> dict[int, float]:
    """What log.jsonl says of a number, by step."""
    lines = map(json.loads, (output / "log.jsonl").read_text().splitlines())
    return {line["step"]: line[name] for line in lines if line["event"] == event}


def kept_id(output: Path, name: str) -> str:
    """The id of the run in the store, as a checkpoint keeps it."""
    progress = json.loads((output / f"checkpoints/step-{STEPS:08d}/progress.json").read_text())
    return progress["watchers"][name]["run_id"]


def test_mlflow_has_the_numbers_of_the_log_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mlflow: Any = pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # of this process, which reads it
    store = (tmp_path / "store").as_uri()
    output, again = trained_twice(tmp_path, {"name": "mlflow", "uri": store, "experiment": "nightly"})
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("nightly").experiment_id])
    assert run.info.run_id == kept_id(output, "mlflow") == kept_id(again, "mlflow")
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizers.sparse.learning_rate"] == "0.05"
    history = client.get_metric_history(run.info.run_id, "train/logloss")
    losses = told(output, "train", "logloss")
    assert {each.step: each.value for each in history} == losses
    assert len(losses) == STEPS
    assert len(history) == STEPS + (STEPS - EVERY), "steps behind the checkpoint were trained twice"
    assert run.data.metrics["test/auc"] == told(output, "test", "auc")[STEPS]


def test_wandb_has_the_numbers_of_the_log_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb", reason="needs wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    output, again = trained_twice(tmp_path, {"name": "wandb", "mode": "offline"})
    assert kept_id(output, "wandb") == kept_id(again, "wandb")
    first, second = (rows_of(each) for each in (output, again))
    losses = told(output, "train", "logloss")
    assert first == losses
    assert second == {step: loss for step, loss in losses.items() if step > EVERY}


def rows_of(output: Path) -> dict[int, float]:
    """train/logloss by step, of the one offline run in a folder."""
    (file,) = output.glob("wandb/offline-run-*/*.wandb")
    kind: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    found: dict[int, float] = {}
    for data in records(file.read_bytes()):
        each = kind()
        each.ParseFromString(data)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in each.history.item}
        if "train/logloss" in items:
            found[items["step"]] = items["train/logloss"]
    return found


def records(data: bytes) -> Iterator[bytes]:
    """Records of a file of wandb: LevelDB's log, blocks of 32 KiB of pieces, behind seven bytes of its own."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := BLOCK - at % BLOCK) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole, at = whole + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or its last piece
            yield whole
            whole = b""


def test_a_store_that_fails_costs_its_lines_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = a_run(tmp_path / "out", ranks=1, steps=2, watchers=("test_experiment_stores:Failing",))
    said: list[Any] = []
    assert train(run, on_progress=said.append)["step"] == 2
    failing = [each["note"] for each in said if "Failing" in each.get("note", "")]
    name = "watcher 'test_experiment_stores:Failing'"
    assert failing == [f"{name} cannot write (OSError: the store of train is full); training goes on without it"]


def test_a_package_that_is_missing_is_told_before_training(monkeypatch: pytest.MonkeyPatch):
    from recsmith.training.watchers import hearing
    from recsmith.training.watchers.mlflow_runs import MlflowRuns

    monkeypatch.setattr(hearing, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="watcher mlflow needs its package: pip install 'mlflow-skinny"):
        MlflowRuns.check_run(a_run(Path("nowhere")))
