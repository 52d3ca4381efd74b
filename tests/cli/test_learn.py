"""`recsmith learn`: its words, the way from samples to a plan, and what it refuses."""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from support.learned import write_model

from recsmith.cli.learn import learn_command
from recsmith.costs.neural_comm_files import load_comm_model
from recsmith.learning import costs

Run = Callable[..., Any]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(costs, "LEAST_SAMPLES", 20)


@pytest.fixture
def measured(run: Run) -> str:
    assert run("measure", "compute", "--hardware", "simulated:h100", "--samples", 30, "-o", "sim").code == 0
    return "sim"


POLICY = ["--hardware", "-o --output", "--row", "--tasks", "--tables", "--seed", "--budget", "--force"]


def test_the_words_are_frozen() -> None:
    assert isinstance(learn_command, click.Group)
    found = {name: [" ".join(each.opts) for each in sub.params] for name, sub in learn_command.commands.items()}
    assert found == {
        "cost": ["--data", "-o --output", "--variant", "--seed", "--epochs", "--budget", "--start", "--force"],
        "comm": ["--data", "--unseen", "-o --output", "--seed", "--epochs", "--budget", "--force"],
        "kernels": ["--data", "--traces", "-o --output", "--seed", "--force"],
        "dreamshard": [*POLICY, "--iterations", "--placements", "--reward"],
        "autoshard": [*POLICY, "--iterations", "--answers", "--episodes", "--actors"],
        "splits": [
            "--cost-model",
            "--device",
            "-o --output",
            "--sizes",
            "--tasks",
            "--tables",
            "--iterations",
            "--imitation",
            "--updates",
            "--seed",
            "--budget",
            "--force",
        ],
    }


@pytest.mark.parametrize("name", ["cost", "comm"])
def test_help_has_an_example(run: Run, name: str) -> None:
    done = run("learn", name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"  recsmith learn {name} --data " in done.out


@pytest.mark.filterwarnings("default")
@needs_torch
def test_from_samples_to_a_plan(run: Run, measured: str, tables: Path) -> None:
    done = run("learn", "cost", "--data", measured, "--output", "m.safetensors", "--epochs", 2)
    assert done.code == 0
    assert done.out.startswith("device    h100, simulated (simulated:h100)\nsamples   30, 0 left out")
    assert "epoch 2 of 2, off by " in done.err
    assert "samples to train on is few; measure more, or begin with the weights of a model: --start cpu" in done.err
    assert "note: wrote m.safetensors; plan with --cost-model neural:m.safetensors" in done.err
    assert json.loads(Path("m.json").read_text())["held_out"]["samples"] > 0
    done = run("plan", tables, "--cluster", "h100:2", "--cost-model", "neural:m.safetensors", "--format", "json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["plan"]["cost_model"] == "neural:m.safetensors"
    assert 0 < found["bound"]["value_s"] <= found["cost"]["total_s"]
    assert "was trained on simulated:h100, which is a formula: no device was measured" in done.err
    assert run("plan", tables, "--cluster", "a100-80:2", "--cost-model", "neural:m.safetensors").code == 2


@needs_torch
def test_from_exchanges_to_a_model(run: Run) -> None:
    for ranks in (2, 3, 16):
        words = ("--ranks", ranks, "--samples", 60, "-o", f"sim-{ranks}")
        assert run("measure", "comm", "--hardware", "simulated:h100", *words).code == 0
    words = ("--data", "sim-2,sim-3", "--unseen", "sim-16", "-o", "m.safetensors", "--epochs", 2)
    done = run("learn", "comm", *words)
    assert done.code == 0
    assert done.out.startswith("device    h100, simulated (simulated:h100, simulated)\nsamples   120, 0 left out")
    assert " exchanges of 2, 3 ranks, 2 epochs\n" in done.out
    *_, last = done.out.splitlines()
    assert last.split()[:2] == ["16", "60"]
    assert last.endswith(" mean; never trained on")
    assert "epoch 2 of 2, off by " in done.err
    model, _ = load_comm_model("m.safetensors")
    nothing = np.zeros(64)
    assert (model.seconds(nothing, nothing, nothing, forward=True) >= model.alpha).all()


@needs_torch
def test_a_start_is_on_the_card(run: Run, measured: str) -> None:
    assert run("learn", "cost", "--data", measured, "-o", "m.safetensors", "--epochs", 1, "--start", "cpu").code == 0
    assert json.loads(Path("m.json").read_text())["start"] == "cpu"


def test_without_pytorch_it_says_what_to_install(run: Run, measured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("training_loop", "costs.training", "costs.network", "comm.training", "comm.network"):
        monkeypatch.delitem(sys.modules, f"recsmith.learning.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("measure", "comm", "--hardware", "simulated:h100", "--samples", 60, "-o", "links").code == 0
    for name, folder in (("cost", measured), ("comm", "links")):
        words = ["--data", folder, "--output", "m.safetensors"]
        refused(run, name, words, "training needs PyTorch: pip install 'torch>=2.11' 'pyarrow>=20'")
        assert not Path("m.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "none", "-o", "m.safetensors"], "'none' holds no measurements"),
        (["--data", "sim", "-o", "m.json"], "the output is 'm.json'; give a name that ends with .safetensors"),
        (["--data", "sim", "-o", "no/m.safetensors"], "no' does not exist; create it first"),
        (["--data", "sim", "-o", "m.safetensors", "--start", "gpu"], "no learned cost model is called 'gpu'"),
        (
            ["--data", "sim", "-o", "m.safetensors", "--start", "cpu", "--variant", "free"],
            "is convex, the model to train is free; add --variant convex",
        ),
        (["--data", ",", "-o", "m.safetensors"], "--data names no folder"),
    ],
)
def test_what_it_refuses(run: Run, words: list[str], message: str) -> None:
    commands = ("cost",) if {"--start", "--variant"} & set(words) else ("cost", "comm")
    for name in commands:
        refused(run, name, words, message)


def refused(run: Run, name: str, words: list[str], message: str) -> None:
    done = run("learn", name, *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_plan_under_a_model_of_ones_own_says_how_far_it_was_off(run: Run) -> None:
    """That of the file's card, in `plan` and in `simulate`."""
    write_model(Path("mine.safetensors"))
    off = "the step may be off: measured kernels ±5.0% (9 held-out groups)"
    tables = [{"name": f"t{i}", "num_embeddings": 1000, "embedding_dim": 16, "pooling_factor": 2} for i in range(4)]
    work = {"schema": "recsmith/workload/1", "batch_size": 64, "optimizer": "rowwise_adagrad", "tables": tables}
    Path("work.json").write_text(json.dumps(work))
    words = ("--cluster", "cpu:2", "--cost-model", "neural:mine.safetensors", "--planner", "size_greedy")
    planned = run("plan", "work.json", *words, "-v", "-o", "plan.json")
    assert planned.code == 0, planned.err
    assert f"error {off}" in " ".join(planned.out.split())
    assert f"error {off}" in " ".join(run("simulate", "plan.json").out.split())
    assert json.loads(Path("plan.json").read_text())["error"]["checked"]["measured kernels"]["error"] == 0.05
