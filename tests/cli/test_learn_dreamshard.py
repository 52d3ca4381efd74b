"""`recsmith learn dreamshard`: from a small run to a plan, and what it refuses at once."""

import json
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsmith.learning.policies import DreamShardRecipe, learn
from recsmith.learning.policies.learn import RunFolder

Run = Callable[..., Any]
SMALL = ("--row", "2x8", "--tasks", 2, "--iterations", 1, "--placements", 3)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the updates and of the judged tasks: what is learned is not asked here."""
    room = pytest.importorskip("recsmith.learning.policies.dreamshard")
    monkeypatch.setattr(room, "DreamShardRecipe", partial(DreamShardRecipe, cost_updates=30))
    monkeypatch.setattr(learn, "JUDGED", 2)


def test_help_has_an_example(run: Run) -> None:
    done = run("learn", "dreamshard", "--help")
    assert (done.code, done.err) == (0, "")
    assert "  recsmith learn dreamshard --hardware simulated:h100 --output mine.safetensors" in done.out


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.usefixtures("brief")
def test_from_tasks_to_a_plan(run: Run, tables: Path) -> None:
    done = run("learn", "dreamshard", "-o", "p.safetensors", *SMALL)
    assert done.code == 0
    assert done.out.startswith("device    h100, simulated (simulated:h100)\ntrained   2 tasks of 8 tables on 2 devices")
    assert "iteration 1 of 1, 3 placements measured" in done.err
    card = json.loads(Path("p.json").read_text())
    assert (card["iterations"], card["devices"], card["tables"]) == (1, 2, 8)
    assert len(Path("p.run/journal.jsonl").read_text().splitlines()) == 1
    done = run("plan", tables, "-c", "h100:2", "--planner", "dreamshard:p.safetensors?samples=2", "--format", "json")
    assert json.loads(done.out)["plan"]["planner"] == "dreamshard:p.safetensors?samples=2"
    done = run("plan", tables, "-c", "cpu:2", "--planner", "dreamshard:p.safetensors")
    assert (done.code, done.out) == (2, "")
    assert "was trained on simulated:h100" in done.err


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.usefixtures("brief")
def test_a_training_that_was_ended_says_so_and_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RunFolder.log

    def interrupted(self: RunFolder, row: dict[str, Any]) -> None:
        if row["number"] == 2:
            raise KeyboardInterrupt
        log(self, row)

    words = ("learn", "dreamshard", "-o", "p.safetensors", *SMALL, "--iterations", "2")
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "log", interrupted)
        done = run(*words)
    assert "ended after 1 of 2 iterations; the same command goes on" in done.err
    done = run(*words)
    assert (done.code, "ended after" in done.err) == (0, False)
    assert json.loads(Path("p.json").read_text())["iterations"] == 2
    assert run("learn", "dreamshard", "-o", "whole.safetensors", *words[4:]).code == 0
    assert Path("whole.safetensors").read_bytes() == Path("p.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (("-o", "p.txt"), "give a name that ends with .safetensors"),
        (("-o", "p.safetensors", "--row", "9x9"), "'9x9' is no row"),
        (("-o", "p.safetensors", "--hardware", "simulated:h200?noise=x"), "is not an option of simulated hardware"),
        (("-o", "nowhere/p.safetensors"), "nowhere"),
    ],
)
def test_wrong_words_are_refused_and_nothing_is_written(run: Run, words: tuple[str, ...], trouble: str) -> None:
    done = run("learn", "dreamshard", *words)
    assert done.code == 2
    assert trouble in done.err
    assert done.err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []
