"""The folder of a run: what is written is read again, and nothing else is taken for it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.benched import SETTINGS

from recsmith.bench.journal import MeasuredVisit, RunStore, load_settings, open_run_store
from recsmith.bench.plans import Attempt
from recsmith.bench.sharding import BenchResults, bench_sharding
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans import Placement

PLACED = Placement(table="a", sharding_type="column_wise", compute_kernel="fused", ranks=(1, 0), widths=(4, 4))


def test_attempts_and_visits_are_read_again(tmp_path: Path):
    visit = MeasuredVisit(
        task="4x4-1", visit=0, kernels={"auto": np.array([[1.0, 2.0]])}, comm={"auto": np.array([[0.5, 0.25]])},
        probe_s=1e-3, device="d", versions="v", date="2026-01-01", elapsed_s=2.0,
    )  # fmt: skip
    attempts = Attempt(planner="auto", placements=(PLACED,), plan_s=0.1), Attempt(planner="x", error="no", plan_s=0.2)
    with open_run_store(tmp_path, SETTINGS) as store:
        for attempt in attempts:
            store.add_attempt("4x4-1", attempt)
        store.add_visit(visit)
    with open_run_store(tmp_path, SETTINGS) as store:
        assert store.attempts == {("4x4-1", each.planner): each for each in attempts}
        (found,) = store.measured.values()
    assert (found.kernels["auto"].tolist(), found.comm["auto"].tolist()) == ([[1.0, 2.0]], [[0.5, 0.25]])
    assert replace(found, kernels={}, comm={}) == replace(visit, kernels={}, comm={})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed 2026 instead of 1"),
        ({"hardware": "simulated:h100"}, r"hardware simulated:h100\?noise=0.03 instead of simulated:h100"),
        ({"visits": 4, "rows": ("4x64",)}, "rows 4x64,4x128 instead of 4x64 and visits 2 instead of 4"),
        ({"visits": 1}, "visits 2 instead of 1"),
        ({"planners": ("cost_greedy",)}, "planners random,cost_greedy,size_greedy@torchrec instead of cost_greedy"),
        ({"cost_model": "torchrec"}, "cost_model analytic instead of torchrec"),
    ],
)
def test_a_folder_of_other_settings_is_refused(whole: tuple[Path, BenchResults], change: dict[str, Any], words: str):
    path, _ = whole
    with pytest.raises(UsageError, match=f"holds a run with {words}; give another folder"):
        bench_sharding(replace(SETTINGS, **change), path)
    assert load_settings(path) == SETTINGS


def test_folders_that_are_something_else_are_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'notes.txt' and no settings.json"):
        bench_sharding(SETTINGS, tmp_path)
    with pytest.raises(UsageError, match="cannot write"):
        bench_sharding(SETTINGS, tmp_path / "notes.txt")


def test_a_damaged_line_is_named(whole: tuple[Path, BenchResults], tmp_path: Path):
    path, _ = whole
    (tmp_path / "settings.json").write_text((path / "settings.json").read_text())
    for line in ("{]", '{"task": "4x64-1"}', '{"measured": {"task": 1}}', '{"task": "4x64-1", "attempt": {}}'):
        (tmp_path / "journal.jsonl").write_text(line + "\n")
        with pytest.raises(CorruptFile, match="journal"):
            bench_sharding(SETTINGS, tmp_path)


ATTEMPT = {"task": "4x64-1", "attempt": {"planner": "random", "plan_s": 1.0}}
VISIT = {
    "task": "4x64-1", "visit": 0, "kernels": {"random": [[1.0, 1.0]]}, "comm": {"random": [[1.0, 1.0]]},
    "probe_s": 1.0, "device": "d", "versions": "v", "date": "", "elapsed_s": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ({"attempt": ATTEMPT["attempt"]}, "line 1: it is no attempt, no bound and no visit"),
        (ATTEMPT | {"task": 1}, "task is 1: input should be a valid string"),
        (ATTEMPT | {"attempt": {"planner": "random", "plan_s": -1}}, "plan_s is -1; seconds are at least 0"),
        ({"measured": VISIT | {"visit": -1}}, "visit is -1"),
        (
            {"measured": VISIT | {"kernels": {"random": [[-1.0, 1.0]]}}},
            "kernels of 'random' is -1; seconds are at least",
        ),
        ({"measured": VISIT | {"kernels": {"random": []}}}, "kernels of 'random' has no rank"),
        ({"measured": VISIT | {"probe_s": 1e300}}, "seconds are at least 0 and below"),
    ],
)
def test_each_damage_of_a_line_has_its_words(tmp_path: Path, line: dict[str, Any], trouble: str):
    for good in (ATTEMPT, {"measured": VISIT}):
        (tmp_path / "journal.jsonl").write_text(json.dumps(good) + "\n")
        RunStore(tmp_path)
    (tmp_path / "journal.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(CorruptFile, match=trouble):
        RunStore(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"rows": ("4x5",)}, {"rows": ()}, {"tasks": 0}, {"visits": 0}, {"seed": -1}, {"planners": ()},
     {"planners": ("auto", "auto")}, {"global_batch": 0}],
)  # fmt: skip
def test_settings_are_checked(change: dict[str, Any]):
    with pytest.raises(UsageError):
        replace(SETTINGS, **change)
