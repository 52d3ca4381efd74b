"""A run that is ended goes on where it was, and ends as one that was not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.benched import SETTINGS, TASK

from recsmith.bench.sharding import BenchProgress, BenchResults, bench_sharding, device_of
from recsmith.bench.tasks import DimRow
from recsmith.errors import MissingExtra, UsageError
from recsmith.reports.benchmarks import bench_lines


def timeless(found: BenchResults) -> tuple[Any, ...]:
    """All that does not depend on how long things took."""
    attempts = {key: replace(each, plan_s=0.0) for key, each in found.attempts.items()}
    kernels = {key: {word: k.tolist() for word, k in each.kernels.items()} for key, each in found.measured.items()}
    comm = {key: {word: c.tolist() for word, c in each.comm.items()} for key, each in found.measured.items()}
    return found.drawn, attempts, kernels, comm, found.complete


def test_every_plan_of_every_task_is_measured(whole: tuple[Path, BenchResults]):
    _, found = whole
    assert found.complete
    assert len(found.attempts) == 2 * 3
    assert {row.row for row in found.drawn} == {DimRow(devices=4, max_dim=64), DimRow(devices=4, max_dim=128)}
    assert set(found.measured) == {(row.tasks[0].name, visit) for row in found.drawn for visit in range(2)}
    for visit in found.measured.values():
        assert set(visit.kernels) == set(SETTINGS.planners)
        for word in SETTINGS.planners:
            assert visit.kernels[word].shape == visit.comm[word].shape == (4, 2)
            assert (visit.kernels[word].sum(axis=-1) > 0).any()


@pytest.mark.parametrize("after", [0, 4, 7, 9])
def test_a_run_that_is_ended_goes_on_and_ends_alike(whole: tuple[Path, BenchResults], tmp_path: Path, after: int):
    heard: list[BenchProgress] = []

    def stop(progress: BenchProgress) -> None:
        heard.append(progress)
        if len(heard) > after:
            raise KeyboardInterrupt

    first = bench_sharding(SETTINGS, tmp_path, on_progress=stop)
    assert not first.complete
    assert len(first.attempts) == min(after, 6)
    assert len(first.measured) == max(0, after - 6)
    assert "goes on" in bench_lines(first)[-1]
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"task": "4x4-1", "att')  # killed while it wrote
    assert timeless(bench_sharding(SETTINGS, tmp_path)) == timeless(whole[1])


def test_a_run_that_is_done_measures_nothing_again(whole: tuple[Path, BenchResults]):
    path, found = whole
    before = (path / "journal.jsonl").read_text()
    assert timeless(bench_sharding(SETTINGS, path)) == timeless(found)
    assert (path / "journal.jsonl").read_text() == before


def test_visits_can_be_added(whole: tuple[Path, BenchResults], tmp_path: Path):
    first = bench_sharding(replace(SETTINGS, visits=1), tmp_path)
    assert {visit for _, visit in first.measured} == {0}
    assert timeless(bench_sharding(SETTINGS, tmp_path)) == timeless(whole[1])


def test_plans_are_made_where_the_gpu_is_not(tmp_path: Path):
    """The device's own model does not ship, or does; either way the tasks are those of its clusters."""
    settings = replace(SETTINGS, hardware="cuda:h100", planners=("size_greedy",), rows=("4x64",))
    found = bench_sharding(settings, tmp_path, plan_only=True)
    assert not found.complete
    assert [each.planner for each in found.attempts.values()] == ["size_greedy"]
    assert found.drawn[0].tasks == (TASK,)
    assert not found.measured
    assert "0 of 2 visits measured" in "\n".join(bench_lines(found))
    with pytest.raises((UsageError, MissingExtra)):
        bench_sharding(settings, tmp_path)  # no such GPU here


def test_a_budget_ends_a_run(tmp_path: Path):
    found = bench_sharding(SETTINGS, tmp_path, budget_s=1e-9)
    assert not found.complete
    assert not found.attempts


def test_a_model_of_another_device_is_refused_before_a_folder_is_made(tmp_path: Path):
    with pytest.raises(UsageError, match="was measured on cpu"):
        bench_sharding(replace(SETTINGS, cost_model="neural:cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hardware", ["gpu", "simulated", "simulated:", "cuda", "cuda:", "cuda:h20", "simulated:tpu"])
def test_only_hardware_that_can_be_measured_is_taken(hardware: str):
    with pytest.raises(UsageError):
        device_of(hardware)


def test_the_device_is_the_hardwares():
    assert device_of("simulated:a100-80?noise=0.1") == "a100-80"
    assert device_of("cuda:h200") == "h200"


def test_ctrl_c_within_a_search_ends_the_run_and_keeps_no_half_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from recsmith.planners.neuroshard import NeuroShard

    search = NeuroShard.plan

    def pressed(self: NeuroShard, *words: Any, **named: Any) -> Any:
        return search(self, *words, **named, on_improve=lambda _: True)  # as if it were pressed at the first plan

    monkeypatch.setattr(NeuroShard, "plan", pressed)
    found = bench_sharding(replace(SETTINGS, planners=("neuroshard",), rows=("4x64",)), tmp_path)
    assert (found.attempts, found.complete) == ({}, False)
