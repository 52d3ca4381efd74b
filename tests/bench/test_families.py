"""Runs of learned planners: their rows, their tasks, and bounds beside what is measured."""

from pathlib import Path

import pytest

from recsmith.bench import sharding
from recsmith.bench.families import LEARNED_ROWS, draw_family_tasks, parse_family_rows
from recsmith.bench.gain_tables import references
from recsmith.bench.gaps import row_gaps
from recsmith.bench.run_store import BenchSettings
from recsmith.bench.sharding import bench_sharding
from recsmith.errors import UsageError
from recsmith.reports.benchmarks import bench_lines, bench_to_raw

SETTINGS = BenchSettings(
    hardware="simulated:h100", cost_model="analytic", rows=("4x12", "2x10"), tasks=2,
    planners=("dreamshard", "dreamshard?samples=2", "cost_greedy", "dim_greedy"), visits=1, seed=1, global_batch=65_536,
    family="learned",
)  # fmt: skip


def test_rows_are_devices_and_tables_in_order() -> None:
    assert SETTINGS.rows == ("2x10", "4x12")
    assert len(LEARNED_ROWS) == 12
    assert [str(row) for row in parse_family_rows("learned", LEARNED_ROWS)] == list(LEARNED_ROWS)
    with pytest.raises(UsageError, match="'4x' is no row"):
        parse_family_rows("learned", ["4x"])
    with pytest.raises(UsageError, match="no rows are named"):
        parse_family_rows("learned", [])
    with pytest.raises(UsageError):
        parse_family_rows("sharding", ["4x50"])


def test_tasks_are_of_the_half_that_judges() -> None:
    drawn = draw_family_tasks("learned", "2x10", 2, 1, "h100", 65_536)
    assert [task.name.partition("-")[0] for task in drawn.tasks] == ["2x10", "2x10"]
    assert all(len(task.workload.tables) == 10 for task in drawn.tasks)


def test_a_run_plans_bounds_and_measures_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "BOUNDED", 1)
    first = bench_sharding(SETTINGS, tmp_path, plan_only=True)
    assert (first.complete, len(first.bounds), len(first.measured)) == (False, 2, 0)
    results = bench_sharding(SETTINGS, tmp_path)
    assert (results.complete, results.bounds, len(results.measured)) == (True, first.bounds, 4)
    assert references(results) == ("dreamshard",)
    for row in results.drawn:
        gaps = row_gaps(results, row)
        assert set(gaps) == set(SETTINGS.planners)
        assert min(gaps.values()) >= 0
        assert gaps["dreamshard?samples=2"] <= gaps["dreamshard"]
    text = "\n".join(bench_lines(results))
    assert "above the bound, by analytic: mean over tasks" in text
    assert "?samples=2" in text
    assert set(bench_to_raw(results)["gaps"]) == {"2x10", "4x12"}
