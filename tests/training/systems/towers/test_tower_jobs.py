"""Towers: real jobs of four ranks on two hosts, whose losses and weights are those of one process."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.unsharded import unsharded_losses

from recsmith.cli.app import app
from recsmith.errors import RecSmithError, UsageError
from recsmith.jobs import launch as jobs
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunComms,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    SparseOptimizer,
    evaluate,
    run_to_raw,
    save_run,
    train,
)
from recsmith.training.run.data import BatchChange
from recsmith.units import format_size
from recsmith.workloads.optimizers import OptimizerName

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
STEPS, BATCH = 8, 64
FEATURES = [
    {"name": name, "num_embeddings": 50 + 7 * i, "pooling_factor": 3, "lengths": "poisson"}
    for i, name in enumerate("abcdef")
]
TOWERS = [["a", "c", "e"], ["f", "b", "d"]]  # of other orders than the tables'


def data(first: int, samples: int) -> dict[str, Any]:
    words = {"format": "generator", "seed": 1, "dense": 2, "features": FEATURES}
    return {**words, "first_sample": first, "num_samples": samples}


def a_run(
    folder: Path, *, ratio: int = 1, clip: float | None = None, sparse: OptimizerName = "sgd", **words: Any
) -> Run:
    model = {"name": "dlrm", "table_module": {"name": "towers", "ratio": ratio, "towers": TOWERS}, **words}
    return Run(
        data=RunData(train=data(0, 20_000), test=data(20_000, 101), global_batch_size=BATCH),
        model=RunModel(embedding_dim=8, bottom=(8,), top=(8,), cross_rank=4, **model),
        output=str(folder), steps=STEPS, checkpoint=Checkpointing(every=4, keep=3), metrics=RunMetrics(every=1),
        optimizers=RunOptimizers(
            sparse=SparseOptimizer(name=sparse, learning_rate=0.05), dense=DenseOptimizer(clip_norm=clip)
        ),
    )  # fmt: skip


def on_two_hosts(*runs: Run) -> list[Any]:
    """Train runs in one job of four ranks."""
    arguments = {"runs": [run_to_raw(run) for run in runs]}
    return jobs.launch("support.tower_jobs:train_all", arguments, ranks=4, hosts=2)[0]


def losses(folder: str) -> list[float]:
    lines = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def weights(folder: str) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(Path(folder) / "model" / "weights.safetensors")


def apart(one: str, other: str) -> float:
    """The largest difference of two trained models, relative to the largest weight of a tensor."""
    here, there = weights(one), weights(other)
    assert here.keys() == there.keys()
    return max(float(np.abs(here[name] - there[name]).max() / np.abs(there[name]).max()) for name in here)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Run, Any]]:
    folder = tmp_path_factory.mktemp("towers")
    growing = RunData(
        train=data(0, 20_000), global_batch_size=BATCH, batch_changes=(BatchChange(after_steps=4, size=2 * BATCH),)
    )
    runs = {
        "ratio 1": a_run(folder / "one"),
        "growing": replace(a_run(folder / "growing", sparse="rowwise_adagrad"), data=growing),
        "clipped": a_run(folder / "clipped", ratio=2, clip=0.02, sparse="rowwise_adagrad"),
        "cross": a_run(folder / "cross", ratio=4, name="dlrm_dcn"),
        "int8": replace(a_run(folder / "int8"), comms=RunComms(backward="int8")),
    }
    return dict(zip(runs, zip(runs.values(), on_two_hosts(*runs.values()), strict=True), strict=True))


def test_ratio_1_trains_as_plain_tables_do(trained: dict[str, tuple[Run, Any]]) -> None:
    for name in ("ratio 1", "growing"):
        run, _ = trained[name]
        plain = replace(run, model=replace(run.model, table_module=None))
        assert losses(run.output) == pytest.approx(unsharded_losses(plain, STEPS), rel=1e-6)


@pytest.mark.parametrize("name", ["clipped", "cross"])
def test_modules_learn_as_on_one_host(name: str, trained: dict[str, tuple[Run, Any]], tmp_path: Path) -> None:
    run, result = trained[name]
    alone = replace(run, output=str(tmp_path / "alone"), ranks=1)
    scores = train(alone)["test"]
    assert losses(run.output) == pytest.approx(losses(alone.output), rel=1e-6)
    assert apart(run.output, alone.output) < 1e-5
    assert {name for name in weights(run.output) if ".interaction.0." in name}
    assert {name for name in weights(run.output) if ".interaction.1." in name}
    assert result["test"]["auc"] == pytest.approx(scores["auc"], abs=1e-6)
    assert evaluate(run.output, ranks=1).logloss == pytest.approx(scores["logloss"], rel=1e-6)


def test_a_job_says_what_left_a_host(trained: dict[str, tuple[Run, Any]]) -> None:
    """Of each sample the vectors of one of two hosts cross, there and back; each host sends half of them."""
    every = BATCH * 8 * len(FEATURES) * 4 / 2
    said = trained["clipped"][1]["brought"]["model.table_module"]
    assert said == (
        f"towers of ratio 2: {format_size(every / 2)} of pooled vectors left a host in a step, where those of plain "
        f"tables are {format_size(every)}"
    )


def test_a_plan_of_towers_is_made_of_a_run_and_trained_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ortools")
    monkeypatch.chdir(tmp_path)
    made = a_run(Path("out"))
    save_run(replace(made, model=replace(made.model, table_module=None)), "run.json")
    app.main(["plan", "run.json", "--cluster", "cpu:1x2", "--towers", "2", "-o", "plan.json"], standalone_mode=False)
    told = (
        "recsmith train run.json --dry-run --set plan=plan.json --set 'model.table_module={name: towers, ratio: auto}'"
    )
    assert told in capsys.readouterr().err
    module = 'model.table_module={"name": "towers", "ratio": 2}'
    result = train("run.json", settings=("plan=plan.json", module, "steps=2"))
    assert "of pooled vectors left a host in a step" in result["brought"]["model.table_module"]
    with pytest.raises(
        UsageError, match=r"is a run, whose step `recsmith train run\.json --dry-run --set plan=PLAN --set"
    ):
        app.main(["predict", "run.json", "--towers", "2"], standalone_mode=False)


def test_towers_differ_from_plain_tables(trained: dict[str, tuple[Run, Any]]) -> None:
    """So that the tests above compare what towers make."""
    run, _ = trained["clipped"]
    plain = replace(run, model=replace(run.model, table_module=None))
    assert losses(run.output) != pytest.approx(unsharded_losses(plain, STEPS), rel=1e-3)


def test_a_model_is_loaded_and_predicts(trained: dict[str, tuple[Run, Any]]) -> None:
    from recsmith.training import load_model

    model = load_model(Path(trained["clipped"][0].output) / "model")
    assert np.isfinite(model({name: [[1, 2]] for name in "abcdef"}, [[0.0, 0.0]])).all()
    assert model.table("f").shape == (85, 8)


def test_a_job_goes_on_with_the_same_bits_and_on_one_host(trained: dict[str, tuple[Run, Any]], tmp_path: Path) -> None:
    run, _ = trained["clipped"]
    again, alone = tmp_path / "again", tmp_path / "alone"
    for folder in (again, alone):
        shutil.copytree(run.output, folder)
        shutil.rmtree(folder / "checkpoints" / f"step-{STEPS:08d}")
        shutil.rmtree(folder / "model")
    on_two_hosts(replace(run, output=str(again)))
    assert (again / "model/weights.safetensors").read_bytes() == (
        Path(run.output) / "model/weights.safetensors"
    ).read_bytes()
    train(replace(run, output=str(alone), ranks=1))
    assert apart(str(alone), run.output) < 1e-5


def test_a_checkpoint_of_other_towers_is_refused(trained: dict[str, tuple[Run, Any]], tmp_path: Path) -> None:
    run, _ = trained["clipped"]
    shutil.copytree(run.output, tmp_path / "out")
    moved = {"name": "towers", "ratio": 2, "towers": [TOWERS[1], TOWERS[0]]}
    other = replace(run, output=str(tmp_path / "out"), ranks=1, model=replace(run.model, table_module=moved))
    with pytest.raises(RecSmithError, match=r"saved with 2 towers of ratio 2 .*give the run the towers of the check"):
        train(other)


def test_int8_is_refused(trained: dict[str, tuple[Run, Any]]) -> None:
    assert "use fp16 or bf16" in trained["int8"][1]
