"""Tasks are the same for a seed anywhere, none is degenerate, and all have a plan."""

from pathlib import Path

import numpy as np
import pytest

from recsmith.bench import sharding
from recsmith.bench.gains import references, row_gaps
from recsmith.bench.journal import BenchSettings
from recsmith.bench.sharding import bench_sharding
from recsmith.bench.tasks import (
    LARGEST_SHARE,
    LEARNED_ROWS,
    ROWS,
    SPACE,
    DimRow,
    device_bytes,
    draw_family_tasks,
    draw_tasks,
    largest_share,
    parse_family_rows,
    parse_rows,
)
from recsmith.costs import cost_model
from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import PlacementTasks
from recsmith.measuring.cases import MOST_ROWS
from recsmith.planning import find_planner
from recsmith.problems import build_problem
from recsmith.reports.benchmarks import bench_lines, bench_to_raw
from recsmith.workloads.sample import shared_pool

ROW = DimRow(devices=4, max_dim=32)


@pytest.fixture(scope="module")
def drawn() -> PlacementTasks:
    return draw_tasks(ROW, 4, 2026, "h100", 65_536)


def test_there_are_twelve_rows():
    assert [str(row) for row in ROWS] == [f"{d}x{m}" for d in (4, 8) for m in (4, 8, 16, 32, 64, 128)]


def test_rows_are_read_in_the_order_of_the_table():
    assert parse_rows(["8x4", "4x128"]) == (DimRow(devices=4, max_dim=128), DimRow(devices=8, max_dim=4))
    for words in (["4x5"], []):
        with pytest.raises(UsageError, match="rows are <devices>x<largest dim>: 4x4, 4x8"):
            parse_rows(words)


def test_a_seed_gives_the_same_tasks_and_more_tasks_begin_with_them(drawn: PlacementTasks):
    again = draw_tasks(ROW, 2, 2026, "h100", 65_536)
    assert again.tasks == drawn.tasks[:2]
    assert draw_tasks(ROW, 1, 2027, "h100", 65_536).tasks[0] != drawn.tasks[0]


def test_tasks_are_those_of_the_paper(drawn: PlacementTasks):
    pool = {table.name: table for table in shared_pool().tables}
    for task in drawn.tasks:
        work = task.workload
        assert 10 <= len(work.tables) <= 60
        assert (work.batch_size, work.optimizer, task.cluster.world_size) == (16_384, "sgd", 4)
        assert {table.embedding_dim for table in work.tables} <= {4, 8, 16, 32}
        for table in work.tables:
            assert table.num_embeddings == min(pool[table.name].num_embeddings, MOST_ROWS)
            assert table.features == pool[table.name].features


def test_the_batch_and_the_device_change_nothing_else():
    row = DimRow(devices=4, max_dim=64)
    (small,), (large,) = (draw_tasks(row, 1, 7, *words).tasks for words in (("cpu", 4096), ("h100", 65_536)))
    assert small.name == large.name
    assert small.workload.tables == large.workload.tables
    assert (small.workload.batch_size, large.workload.batch_size) == (1024, 16_384)


def test_no_shard_that_cannot_be_split_decides_a_task(drawn: PlacementTasks):
    for task in drawn.tasks:
        pooling = np.array([table.features[0].pooling_factor for table in task.workload.tables])
        dims = np.array([table.embedding_dim for table in task.workload.tables])
        assert largest_share(pooling, dims, 4) < LARGEST_SHARE
    assert drawn.degenerate > 0
    assert 0 < drawn.rejected < 1


def test_the_largest_share_is_that_of_the_narrowest_shard():
    # two tables of 64 columns, 3 ids and a bag of each sample: 4 rows of 64 columns each; narrowest 4 * 17/16 / 2
    assert largest_share(np.array([3.0, 3.0]), np.array([64, 64]), 4) == pytest.approx((4 * 17 / 32) / (8 / 4))
    # what is 4 columns wide stays whole
    assert largest_share(np.array([3.0, 3.0]), np.array([4, 4]), 4) == pytest.approx(2.0)


def test_memory_holds_a_sixteenth_more_than_an_even_share_and_half_of_the_largest_table(drawn: PlacementTasks):
    for task in drawn.tasks:
        problem = build_problem(task.workload, task.cluster, SPACE)
        assert task.cluster.hbm_bytes == device_bytes(problem)
        weights = np.array([table.weight_bytes for table in task.workload.tables])
        largest = max(table.weight_bytes // (2 if table.embedding_dim > 4 else 1) for table in task.workload.tables)
        assert task.cluster.capacities[0] > max(weights.sum() / 4, largest) * 16 / 15


def test_tasks_can_be_planned(drawn: PlacementTasks):
    for task in drawn.tasks:
        problem = build_problem(task.workload, task.cluster, SPACE)
        found = find_planner("cost_greedy").plan(problem, cost_model("analytic").compile(problem))
        assert found.total_s > 0


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
