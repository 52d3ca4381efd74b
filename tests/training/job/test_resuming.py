"""A checkpoint that a job goes on from: nothing that it names is run, and what has changed since is told or refused."""

import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
import torch.distributed as dist
import torchrec.optim
from torch._C._distributed_c10d import HashStore
from torch.distributed.checkpoint.state_dict_saver import save
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper

from recsmith.errors import CorruptFile, RecSmithError
from recsmith.testing.stores import a_model
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunOptimizers,
    SparseOptimizer,
    save_run,
    train,
)
from recsmith.training.job.checkpoints import Checkpoints
from recsmith.training.job.log import progress_text
from recsmith.training.job.resuming import Saved, checkpoint_folders, newest_in
from recsmith.training.random_states import random_states, restore_random_states
from recsmith.training.stores.checkpoint import CheckpointRows, write_checkpoint
from recsmith.training.stores.device import DeviceRows
from recsmith.training.systems.arrays.going_on import newest_in_common

CLASSES: dict[str, Any] = {"adagrad": torch.optim.Adagrad, "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
                           "sgd": torch.optim.SGD, "adam": torch.optim.Adam}  # fmt: skip
RUN = Run(data=RunData(train="x", batch_size=32), output="out")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Hostile:
    """What a pickle would call."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """A job of one rank, which is this process."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def of(name: str, part: str = "sparse") -> Run:
    """The run with an optimizer of tables, or of dense layers."""
    if part == "dense":
        return replace(RUN, optimizers=RunOptimizers(dense=DenseOptimizer(name=name)))
    return replace(RUN, optimizers=RunOptimizers(sparse=SparseOptimizer(name=name)))  # type: ignore[arg-type]


def a_job(name: str, part: str = "sparse") -> Any:
    """A model with an optimizer, as far as checkpoints look at it."""
    model = a_model()
    table: Any = {key: value for key, value in model.named_parameters() if "embedding_bags" in key}
    wrapped = KeyedOptimizerWrapper(table, lambda parameters: CLASSES[name](parameters, lr=0.1))
    for parameter in table.values():
        parameter.grad = torch.ones_like(parameter)
    wrapped.step()
    return SimpleNamespace(hook=None, rows=DeviceRows(model, CombinedOptimizer([(part, wrapped)])))


def a_checkpoint(folder: Path, name: str = "adagrad", part: str = "sparse") -> Saved:
    """A checkpoint of such a job."""
    shutil.rmtree(folder, ignore_errors=True)
    save(a_job(name, part).rows.state_dict(), checkpoint_id=folder / "state")
    progress = {"step": 7, "ranks": 2, "position": None, "scores": None}
    (folder / "progress.json").write_text(json.dumps(progress))
    (folder / "random-0.json").write_text(json.dumps(random_states()))
    save_run(of(name, part), folder / "run.json")
    return Saved(folder)


@pytest.mark.parametrize("optimizer", CLASSES)
def test_a_sound_checkpoint_is_loaded(optimizer: str, tmp_path: Path) -> None:
    job, saved = a_job(optimizer), a_checkpoint(tmp_path / "step", optimizer)
    wanted = {shard.parameter: shard.tensor.clone() for shard in job.rows.shards()}
    with torch.no_grad():
        for shard in job.rows.shards():
            shard.tensor.zero_()
    saved.load(job, of(optimizer))
    assert all(torch.equal(shard.tensor, wanted[shard.parameter]) for shard in job.rows.shards())
    saved.restore_random()


def test_an_optimizer_that_keeps_nothing_leaves_no_trace_in_a_checkpoint(tmp_path: Path) -> None:
    """As FBGEMM's SGD. PyTorch writes no empty state, and looks for it where ranks hold different tables."""
    job, saved = a_job("sgd"), a_checkpoint(tmp_path / "step", "sgd")
    ((_, part),) = job.rows.optimizer.optimizers
    part.state.clear()
    part.step = lambda: None
    assert "optimizer" not in job.rows.state_to_load()
    saved.load(job, of("sgd"))


def test_what_metadata_name_is_not_run(tmp_path: Path) -> None:
    saved, marker = a_checkpoint(tmp_path / "step"), tmp_path / "marker"
    (saved.folder / "state/.metadata").write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(RecSmithError, match="is not the metadata of a checkpoint: it names pathlib"):
        saved.load(a_job("adagrad"), of("adagrad"))
    with pytest.raises(CorruptFile, match="it names pathlib"):
        CheckpointRows(saved.folder / "state").state_dict()
    assert not marker.exists()


def test_what_objects_name_is_not_run(tmp_path: Path) -> None:
    marker, job = tmp_path / "marker", a_job("adagrad")
    state = job.rows.state_dict()
    state["model"]["odd"] = Hostile(marker)
    saved = a_checkpoint(tmp_path / "step")
    shutil.rmtree(saved.folder / "state")
    save(state, checkpoint_id=saved.folder / "state")
    marker.unlink(missing_ok=True)
    rows: Any = SimpleNamespace(state_to_load=lambda: {**state, "model": {**state["model"], "odd": 0}})
    with pytest.raises(CorruptFile, match=r"'model.odd' is no plain data, and is not loaded"):
        saved.load(SimpleNamespace(rows=rows, hook=None), of("adagrad"))  # type: ignore[arg-type]
    assert not marker.exists()


@pytest.mark.parametrize(
    ("before", "now", "part"),
    [("adagrad", "rowwise_adagrad", "sparse"), ("rowwise_adagrad", "adagrad", "sparse"), ("sgd", "adagrad", "sparse"),
     ("adam", "adagrad", "dense")],
)  # fmt: skip
def test_another_optimizer_is_named_and_the_checkpoint_is_called_sound(
    before: str, now: str, part: str, tmp_path: Path
) -> None:
    saved = a_checkpoint(tmp_path / "step", before, part)
    with pytest.raises(CorruptFile) as refused:
        saved.load(a_job(now, part), of(now, part))
    assert f"is sound, and optimizers.{part} is {before} there and {now} here" in str(refused.value)
    assert "remove" not in str(refused.value)


def test_an_optimizer_without_state_goes_on_from_any(tmp_path: Path) -> None:
    saved = a_checkpoint(tmp_path / "step")
    saved.load(a_job("sgd"), of("sgd"))
    assert "optimizers.sparse.name adagrad -> sgd" in saved.lines(of("sgd"), 2)[1]


def test_what_has_changed_is_told_in_one_line(tmp_path: Path) -> None:
    saved = a_checkpoint(tmp_path / "step")
    now = of("adagrad")
    assert saved.lines(replace(now, output="elsewhere", steps=9), 2) == [f"going on after step 7 of '{saved.folder}'"]
    faster = replace(now.optimizers, sparse=SparseOptimizer(name="adagrad", learning_rate=0.5))
    told = saved.lines(replace(now, optimizers=faster, data=RunData(train="x", batch_size=64)), 3)
    assert told[1:] == [
        "changed since that checkpoint: data.batch_size 32 -> 64, optimizers.sparse.learning_rate 0.02 -> 0.5, "
        "ranks 2 -> 3"
    ]


DAMAGE: dict[str, Any] = {
    "progress.json": [
        b"",
        b"[]",
        b'{"step": "x", "ranks": 1}',
        b'{"ranks": 1}',
        b"\xff\xfe",
        b'{"step": 7, "ranks": 10000000000000}',
        b'{"step": -7, "ranks": 1}',
        b'{"step": 7, "ranks": 1, "position": 5}',
    ],
    "random-0.json": [b"", b"[]", b"{}", b'{"python": [3, [1], null], "numpy": [], "torch": "", "cuda": []}'],
    "run.json": [b"", b"{}", b'{"schema": "recsmith/run/1", "output": 3}'],
    "state/.metadata": [b"", b"\x80\x04.", pickle.dumps({"a": 1})],
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, datas in DAMAGE.items() for data in datas])
def test_a_damaged_file_ends_in_one_sentence(name: str, data: bytes, tmp_path: Path) -> None:
    saved, before = a_checkpoint(tmp_path / "step"), random_states()
    (saved.folder / name).write_bytes(data)

    def go_on() -> None:
        saved.lines(RUN, 2)
        saved.load(a_job("adagrad"), of("adagrad"))
        saved.restore_random()

    with pytest.raises(RecSmithError) as refused:
        go_on()
    restore_random_states(before)
    assert name.rpartition("/")[2] in str(refused.value)


def test_damaged_tensors_end_in_one_sentence(tmp_path: Path) -> None:
    saved = a_checkpoint(tmp_path / "step")
    (file,) = (saved.folder / "state").glob("*.distcp")
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * len(whole)):
        file.write_bytes(damaged)
        with pytest.raises(RecSmithError, match=r"is damaged|cut short|begin"):
            saved.load(a_job("adagrad"), of("adagrad"))
        with pytest.raises(CorruptFile, match=r"is damaged|cut short|begin"):
            CheckpointRows(saved.folder / "state").state_dict()


def test_a_checkpoint_is_of_the_step_that_its_folder_names(tmp_path: Path) -> None:
    """Training that went on from another step would end at the next checkpoint, whose folder is there."""
    assert a_checkpoint(tmp_path / "step-00000007").progress["step"] == 7
    for step in (0, -0.0, 6):
        saved = a_checkpoint(tmp_path / "step-00000007")
        (saved.folder / "progress.json").write_text(json.dumps({"step": step, "ranks": 2}))
        with pytest.raises(CorruptFile, match=rf"is of step {step:.0f}, unlike its folder".replace("-0,", "0,")):
            _ = saved.progress


def test_a_checkpoint_that_is_written_here_is_read_here(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "state", {"model.t": torch.arange(6.0).reshape(3, 2)})
    rows = CheckpointRows(tmp_path / "state").state_dict()
    assert torch.equal(rows["model.t"], torch.arange(6.0).reshape(3, 2))


def test_samples_of_click_logs_are_counted_when_a_run_goes_on(tmp_path: Path) -> None:
    """They are known once the first batch was asked for, whether the plan is made or taken from a checkpoint."""
    line = "\t".join(["0", *["5"] * 13, *["abcdef01"] * 26]) + "\n"
    (tmp_path / "train.txt").write_text(line * 20)
    (tmp_path / "test.txt").write_text(line * 3 + line.replace("0", "-1", 1) * 2)
    clicks = {
        part: {"format": "criteo", "paths": [str(tmp_path / f"{part}.txt")], "max_rows": 9}
        for part in ("train", "test")
    }
    run = {
        "schema": "recsmith/run/1", "ranks": 1, "output": str(tmp_path / "out"), "checkpoint": {"every": 1},
        "metrics": {"every": 1}, "model": {"embedding_dim": 4, "bottom": [4], "top": [4]},
        "data": {**clicks, "batch_size": 8},
    }  # fmt: skip
    for steps in (1, 2):
        told: list[str] = []
        (tmp_path / "run.json").write_text(json.dumps(run | {"steps": steps}))
        train(str(tmp_path / "run.json"), on_progress=lambda message, told=told: told.append(progress_text(message)))
        assert any("data: 20 samples; 8 a rank and step" in line for line in told), told
        assert any("4 of 20 samples fill no step" in line for line in told), told
        assert any(line.endswith("of 3 samples; 2 corrupt ones were left out") for line in told), told
        assert any(line.startswith("step ") and "no NE or AUC (all labels are equal)" in line for line in told), told


def test_the_newest_of_many_steps_is_the_newest(tmp_path: Path) -> None:
    """From 100,000,000 steps on, numbers have more digits than zeros were put before the others."""
    steps = [f"step-{step:08d}" for step in (99_999_000, 99_999_999, 100_000_000)]
    for each in steps:
        (tmp_path / each).mkdir()
    newest = newest_in(tmp_path)
    assert newest is not None
    assert newest.folder.name == steps[-1]
    made: Any = Checkpoints.__new__(Checkpoints)  # its folder alone: a whole one needs ranks
    made.folder, made.settings = tmp_path, Checkpointing(keep=2)
    made.prune()
    assert [each.name for each in checkpoint_folders(tmp_path)] == steps[1:]
    assert made.drop(99_999_999)
    assert not made.drop(100_000_000)
    assert [each.name for each in checkpoint_folders(tmp_path)] == steps[1:2]
    common = newest_in_common({"a": set(steps), "b": set(steps[1:])})
    assert common == steps[-1]
