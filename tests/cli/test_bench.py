"""`recsmith bench sharding`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL = ("--hardware", "simulated:h100", "--rows", "4x128", "--tasks", "2", "--visits", "2", "--planners",
         "cost_greedy,size_greedy", "--cost-model", "analytic")  # fmt: skip


def test_a_run_says_its_table_and_progress_goes_to_stderr(run: Callable[..., Any], tmp_path: Path):
    done = run("bench", "sharding", *SMALL, "-o", tmp_path / "out")
    assert done.code == 0
    assert "2 a row, 4 of 4 visits measured" in done.out
    assert "recsmith: planning: 0 of 4" in done.err
    again = run("bench", "sharding", *SMALL, "-o", tmp_path / "out", "--format", "json")
    raw = json.loads(again.out)
    assert (raw["schema"], raw["complete"]) == ("recsmith/bench-sharding-result/1", True)
    assert again.err == ""


def test_a_run_that_is_cut_prints_what_there_is(run: Callable[..., Any], tmp_path: Path):
    done = run("bench", "sharding", *SMALL, "-o", tmp_path / "out", "--budget", "1ms")
    assert done.code == 0
    assert "0 of 4 visits measured" in done.out
    assert "not complete; the same command with -o" in done.err


def test_another_seed_is_refused(run: Callable[..., Any], tmp_path: Path):
    run("bench", "sharding", *SMALL, "-o", tmp_path / "out", "--budget", "1ms")
    done = run("bench", "sharding", *SMALL, "-o", tmp_path / "out", "--seed", "1")
    assert (done.code, done.out) == (2, "")
    assert "seed 2026 instead of 1" in done.err
