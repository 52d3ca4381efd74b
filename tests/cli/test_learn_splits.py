"""`recsmith learn splits`: from a small run to a plan, and what it refuses at once."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SMALL = ("--cost-model", "analytic", "--sizes", "2x10", "--tasks", 2, "--iterations", 1, "--updates", 2)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_from_tasks_to_a_plan(run: Run, tables: Path) -> None:
    done = run("learn", "splits", "-o", "p.safetensors", *SMALL)
    assert done.code == 0
    assert "2 tasks of 2x10; 1 iteration" in done.out
    assert "iteration 1 of 1, steps " in done.err
    assert done.err.endswith("wrote p.safetensors; plan with --planner 'dreamshard:p.safetensors?splits=8'\n")
    assert json.loads(Path("p.run/settings.json").read_text())["schema"] == "recsmith/splits-run/1"
    done = run("plan", tables, "-c", "h100:2", "--planner", "dreamshard:p.safetensors?splits=2", "--format", "json")
    assert json.loads(done.out)["plan"]["planner"] == "dreamshard:p.safetensors?splits=2"
    done = run("plan", tables, "-c", "h100:2", "--planner", "dreamshard:p.safetensors")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected `recsmith/dreamshard-card/1`" in done.err
    done = run("learn", "dreamshard", "-o", "p.safetensors")
    assert done.code == 2
    assert "--force" in done.err


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_a_cpu_has_its_own_cost_model(run: Run) -> None:
    small = ("--sizes", "2x10", "--tasks", 1, "--iterations", 1, "--updates", 1, "--imitation", 0)
    done = run("learn", "splits", "-o", "p.safetensors", "--device", "cpu", *small)
    assert done.code == 0
    assert "priced by neural:cpu (cpu); nothing is measured" in done.out


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("-o", "p.txt"), "give a name that ends with .safetensors"),
        (("-o", "p.safetensors", "--sizes", "9x"), "'9x' is no row"),
        (("-o", "p.safetensors", "--sizes", ","), "sizes are none"),
        (("-o", "p.safetensors", "--cost-model", "nobody"), "nobody"),
        (("-o", "p.safetensors", "--cost-model", "analytic", "--device", "nobody"), "nobody"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(run: Run, words: tuple[str, ...], trouble: str) -> None:
    done = run("learn", "splits", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert trouble in done.err
    assert list(Path.cwd().iterdir()) == []
