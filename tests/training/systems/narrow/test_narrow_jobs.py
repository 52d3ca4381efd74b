"""Real jobs with narrow layers: resumed in each phase they end with the same bits, whole, and auto says why not."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import RecSmithError, UsageError
from recsmith.training import (
    Checkpointing,
    DenseOptimizer,
    Run,
    RunData,
    RunMetrics,
    RunModel,
    RunOptimizers,
    train,
)
from recsmith.training.launch.launching import dry_run
from recsmith.training.systems.narrow.settings import NarrowSettings

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
WEIGHTS = "model/weights.safetensors"
NARROW = NarrowSettings(cycles=1, dense_at_start=1 / 3, dense_at_end=0.25)  # narrow after steps 10 to 30 of 40


def a_run(output: Path, **words: Any) -> Run:
    features = [{"name": name, "num_embeddings": rows} for name, rows in (("a", 100), ("b", 40))]
    train = {"format": "generator", "seed": 1, "dense": 2, "features": features, "num_samples": 4000}
    values: dict[str, Any] = {
        "data": RunData(train=train, global_batch_size=64),
        "model": RunModel(embedding_dim=8, bottom=(64,), top=(128, 64), narrow=NARROW),
        "output": str(output), "steps": 40, "checkpoint": Checkpointing(every=5, keep=9),
        "metrics": RunMetrics(every=10),
    }  # fmt: skip
    return Run(**{**values, **words})


def resumed(run: Run, step: int, again: Path) -> Path:
    """A copy of a run's folder as it was after a step, trained to the end."""
    shutil.copytree(run.output, again)
    shutil.rmtree(again / "model")
    for folder in (again / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)
    train(run, settings=(f"output={again}",))
    return again


def narrow_lines(folder: Path | str) -> list[tuple[int, bool]]:
    lines = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["narrow"]) for line in lines if line["event"] == "narrow"]


def test_two_ranks_narrow_alike_and_go_on_within_a_phase(tmp_path: Path) -> None:
    comms = {"name": "thresholded", "dense": 0.1}
    run = a_run(tmp_path / "out", ranks=2, comms=comms)
    said: list[Any] = []
    brought = train(run, on_progress=said.append)["brought"]["model.narrow"]
    assert brought.startswith("narrow: 51% of the steps were narrow and took ")  # 20 of 39 that another one follows
    assert narrow_lines(run.output) == [(10, True), (30, False)]
    assert any("step 10: narrow: 24 of 64, 48 of 128, 24 of 64 units train" in str(each) for each in said)
    again = resumed(run, 15, tmp_path / "again")
    assert (again / WEIGHTS).read_bytes() == Path(run.output, WEIGHTS).read_bytes()
    assert narrow_lines(again) == narrow_lines(run.output)


def test_a_job_goes_on_in_each_phase_with_the_same_bits(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    dense = RunOptimizers(dense=DenseOptimizer(name="adagrad", learning_rate=0.02))
    run = a_run(tmp_path / "out", optimizers=dense)
    train(run)
    for step in (5, 10, 20, 35):
        again = resumed(run, step, tmp_path / str(step))
        assert (again / WEIGHTS).read_bytes() == Path(run.output, WEIGHTS).read_bytes(), step
    plain = replace(run, output=str(tmp_path / "plain"), model=replace(run.model, narrow=None))
    train(plain)
    found, wanted = load_file(Path(run.output, WEIGHTS)), load_file(Path(plain.output, WEIGHTS))
    assert {name: each.shape for name, each in found.items()} == {name: each.shape for name, each in wanted.items()}
    out = found["model.over_arch.model.0._mlp.1._linear.weight"]
    assert int((out != 0).any(0).sum()) > 2 * 48, "units train again at the end, but for those that nothing activates"
    static = NarrowSettings(cycles=1, dense_at_start=0.25, dense_at_end=0)
    train(left := replace(run, output=str(tmp_path / "static"), model=replace(run.model, narrow=static)))
    out = load_file(Path(left.output, WEIGHTS))["model.over_arch.model.0._mlp.1._linear.weight"]
    assert int((out != 0).any(0).sum()) == 48, "what is parked for good leads nowhere"


def test_a_dry_run_says_what_a_phase_costs_and_auto_why_it_is_left_out(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out")
    told = "\n".join(dry_run(run))
    assert "narrow: 35% of units train in 50% of the steps, and linear layers do " in told
    assert "of gradients a step, in full size in both" in told
    assert "narrow: all units of " in told
    small = replace(run.model, narrow="auto", top=(64,))
    told = "\n".join(dry_run(replace(run, model=small, steps=200)))
    assert "model.narrow, which is auto, is left out: it " in told
    assert "of the device time of a sample" in told
    wide = replace(run.model, narrow="auto", top=(1024, 1024))
    told = "\n".join(dry_run(replace(run, model=wide, steps=200)))
    assert "so model.narrow, which is auto, is on" in told
    told = "\n".join(dry_run(replace(run, model=wide, steps=20)))
    assert "left out: model.narrow gives a dense phase of 2 of the 20 steps" in told


def test_what_cannot_be_narrow_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = a_run(tmp_path / "out")
    decays = RunOptimizers(dense=DenseOptimizer(name="adamw"))
    with pytest.raises(
        UsageError, match=r"weight_decay 0.01, which would shrink .* write arguments: \{weight_decay: 0"
    ):
        dry_run(replace(run, optimizers=decays))
    with pytest.raises(RecSmithError, match="dense phase of 2 of the 8 steps"):
        train(replace(run, steps=8))
    with pytest.raises(UsageError, match="widest hidden layer has 32 units"):
        dry_run(replace(run, model=replace(run.model, bottom=(16,), top=(32,))))
    assert not (tmp_path / "out" / "run.json").exists()
