"""`recsmith learn autoshard`: from a small run to a plan, and what it refuses at once."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SMALL = ("--row", "2x8", "--tasks", 2, "--iterations", 1, "--answers", 1, "--episodes", 3, "--actors", 1)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("recsmith.learning.policies.learn.JUDGED", 2)  # what is learned is not asked here


def test_help_has_an_example(run: Run) -> None:
    done = run("learn", "autoshard", "--help")
    assert (done.code, done.err) == (0, "")
    assert "  recsmith learn autoshard --hardware simulated:h100 --output mine.safetensors" in done.out


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_from_tasks_to_a_plan(run: Run, tables: Path) -> None:
    done = run("learn", "autoshard", "-o", "p.safetensors", *SMALL)
    assert done.code == 0
    assert "          3 placements measured, 1 iteration, measured rewards" in done.out
    assert "iteration 1 of 1, 3 placements measured" in done.err
    assert done.err.endswith("wrote p.safetensors; plan with --planner autoshard:p.safetensors\n")
    assert json.loads(Path("p.run/settings.json").read_text())["schema"] == "recsmith/autoshard-run/1"
    done = run("plan", tables, "-c", "h100:2", "--planner", "autoshard:p.safetensors?samples=2", "--format", "json")
    assert json.loads(done.out)["plan"]["planner"] == "autoshard:p.safetensors?samples=2"
    done = run("plan", tables, "-c", "h100:2", "--planner", "dreamshard:p.safetensors")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected `recsmith/dreamshard-card/1`" in done.err
    done = run("learn", "dreamshard", "-o", "p.safetensors")
    assert done.code == 2
    assert "--force" in done.err


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("-o", "p.txt"), "give a name that ends with .safetensors"),
        (("-o", "p.safetensors", "--row", "9x9"), "'9x9' is no row"),
        (("-o", "p.safetensors", "--hardware", "h100"), "a policy learns on cpu, cuda:<gpu> or simulated:<gpu>"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(run: Run, words: tuple[str, ...], trouble: str) -> None:
    done = run("learn", "autoshard", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert trouble in done.err
    assert list(Path.cwd().iterdir()) == []
