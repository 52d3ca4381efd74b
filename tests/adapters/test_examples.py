"""The examples run as a reader would run them."""

import importlib
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.quick_plans import search

import recsmith

EXAMPLES = Path(__file__).parents[2] / "examples"
DROPIN = str(EXAMPLES / "torchrec_dropin.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
needs_torchrec = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_ranks(script: str) -> str:
    """What a script for torchrun prints on two ranks that have joined their job; rank 0 alone prints."""
    from recsmith.jobs.launch import launch

    said, nothing = launch("support.jobs:said_by", {"script": script}, ranks=2)
    assert nothing == ""
    return said


def test_plan_and_compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(recsmith, "plan", partial(recsmith.plan, iterations=1))  # what a search finds is not asked here
    runpy.run_path(str(EXAMPLES / "plan_and_compare.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ms a step, no plan below ")[0].split()[0] for line in lines] == ["h100:8:", "h100:8x2:"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tables_of_your_own", r"item: \w+ on ranks \(.*\)\nuser: \w+ on ranks \(.*\)\n"),
        ("tables_from_csv", r"3 tables: \d+\.\d+ ms a step on four L4\n"),
        ("rules_for_tables", r"as it is best: +\d+ us, .*\nwith whole tables: \d+ us, .*\n"),
        ("how_many_devices", r"( +\d+ devices: .* samples a second\n){3}"),
        ("host_memory", r"without host memory: the tables need .*\nwith caches: .* tables in host memory\n"),
        ("placements_of_your_own", r"dealt out: \d+ us, .*\nsearched: +\d+ us; \d+ tables .*\n"),
        ("plan_that_runs_today", r"rank 0 decides, 1\.\d times the mean\n\d+ us today, \d+ us at best known\n"),
    ],
)
def test_examples_for_newcomers(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(recsmith, "plan", partial(recsmith.plan, iterations=1))
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert re.fullmatch(said, capsys.readouterr().out)


@pytest.mark.usefixtures("torchrec")
def test_model_in_torchrec(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / "model_in_torchrec.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith("module: ebc\n\n")
    assert {"user", "item"} <= set(said.split())


def test_own_planner(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / "own_planner.py"), run_name="__main__")
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["restarts under read_bytes", "under analytic"]


def test_every_example_is_run_by_some_test():
    here = "".join(path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [
        path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}' not in here and f"{path.stem}.py" not in here
    ] == []


@needs_torchrec
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(lambda: on_ranks(DROPIN), id="on ranks"),
        pytest.param(lambda: run(DROPIN, "--ranks", "2"), marks=pytest.mark.soak, id="by itself"),
        pytest.param(lambda: run(*TORCHRUN, DROPIN), marks=pytest.mark.soak, id="torchrun"),
    ],
)
def test_torchrec_dropin(start: Callable[[], str]):
    plan, loss = start().splitlines()
    assert "user row_wise" in plan
    assert "device data_parallel" in plan
    losses = [float(number) for number in re.findall(r"\d+\.\d+", loss)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.usefixtures("torchrec")
def test_torchrec_dropin_starts_a_job_of_its_own_function(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("torchrec_dropin")

    def launched(function: str, arguments: dict[str, Any], *, ranks: int) -> list[dict[str, Any]]:
        module, _, name = function.partition(":")
        inspect.signature(getattr(importlib.import_module(module), name)).bind(**arguments)
        return [{"types": {"user": "row_wise"}, "losses": [0.7] * ranks}]

    monkeypatch.setattr(example, "launch", launched)
    monkeypatch.setattr(sys, "argv", ["torchrec_dropin.py", "--ranks", "6"])
    monkeypatch.delenv("RANK", raising=False)
    example.main()
    assert capsys.readouterr().out == "plan   user row_wise\nloss   0.700 0.700\n"


@pytest.mark.usefixtures("torchrec")
def test_plan_that_lives(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.syspath_prepend(str(EXAMPLES))  # its jobs name functions of its own
    search(set_=monkeypatch.setattr)  # for a plan with tables on every rank
    monkeypatch.setattr(sys, "argv", ["plan_that_lives.py"])
    runpy.run_path(str(EXAMPLES / "plan_that_lives.py"), run_name="__main__")
    said = capsys.readouterr().out
    found = re.search(r"moved (\d+)% .*\n.*: (\S+) before, (\S+) after", said)
    assert found is not None
    moved, before, after = found.groups()
    assert 0 < int(moved) <= 90
    assert float(before) == pytest.approx(float(after), abs=2e-6)  # both are rounded to 1e-6
    assert float(after) < 0.99


@needs_torchrec
@pytest.mark.soak  # what it shows is tested in tests/training
def test_train_and_predict():
    said = run(str(EXAMPLES / "train_and_predict.py"))
    assert re.search(r"test AUC 0\.[5-7]\d+ after 19 steps", said)
