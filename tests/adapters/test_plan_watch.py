"""A running job beside its plan: real ranks, real kernels."""

import math
from typing import Any

import pytest

pytest.importorskip("torchrec")

from support import watched as job

STEPS, SKIP = 4, 2


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    from recsmith.jobs.launch import launch

    return launch("support.watched:watched", {"steps": STEPS, "skip": SKIP, "steps_left": 10**9}, ranks=2)


def test_every_rank_has_the_same_report(said: list[dict[str, Any]]) -> None:
    assert said[0]["report"] == said[1]["report"]
    assert said[0]["new"] == said[1]["new"]


def test_the_watch_ends_by_itself_and_training_goes_on(said: list[dict[str, Any]]) -> None:
    for rank in said:
        assert rank["ended"] == [False] * (SKIP + STEPS - 1) + [True, False]
        assert (rank["times"], rank["seen"]) == (STEPS, STEPS)


def test_kernels_take_time_where_the_plan_has_tables(said: list[dict[str, Any]]) -> None:
    busy, idle = said[0]["report"]["ranks"]
    for part in ("forward_s", "backward_s"):
        assert math.isfinite(busy[part])
        assert busy[part] > 0
        assert busy[f"predicted_{part}"] > 0
        assert idle[f"predicted_{part}"] == 0
    assert idle["backward_s"] == 0


def test_the_workload_has_the_statistics_of_all_ranks_batches(said: list[dict[str, Any]]) -> None:
    workload = said[0]["report"]["workload"]
    assert workload["batch_size"] == job.BATCH
    assert [table["features"][0]["pooling_factor"] for table in workload["tables"]] == list(job.READ)
    assert [table["access"]["lookups"] for table in workload["tables"]] == [job.BATCH * count for count in job.READ]


def test_both_tables_on_one_rank_do_not_pay(said: list[dict[str, Any]]) -> None:
    report = said[0]["report"]
    assert report["running_s"] > report["planned_s"]  # read more often than was planned
    assert report["saved_s"] > 0
    assert report["moved_bytes"] > 0
    assert {rank for placement in said[0]["new"] for rank in placement["ranks"]} == {0, 1}
