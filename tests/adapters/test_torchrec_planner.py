"""TorchRec's own planner on tasks: whole placements in the space, within memory, or the reason why there are none."""

from dataclasses import replace

import pytest

from recsmith.bench.plans import attempt
from recsmith.bench.tasks import SPACE, Task, TaskRow, draw_tasks
from recsmith.plans import check_placements
from recsmith.problems import build_problem, footprint_of

pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.fixture(params=[("cpu", 4096), ("h100", 65_536)], scope="module")
def task(request: pytest.FixtureRequest) -> Task:
    return draw_tasks(TaskRow(devices=4, max_dim=16), 1, 2026, *request.param).tasks[0]


def test_its_plans_are_placements_of_the_space(task: Task):
    found = attempt("torchrec", task, "analytic", 0)
    assert found.error is None
    check_placements(found.placements, task.workload, task.cluster)
    assert [placement.table for placement in found.placements] == sorted(t.name for t in task.workload.tables)
    footprint_of(build_problem(task.workload, task.cluster, SPACE), found.placements)


def test_without_room_it_finds_no_plan(task: Task):
    tight = replace(task, cluster=task.cluster.with_memory(2**20))
    found = attempt("torchrec", tight, "analytic", 0)
    assert found.placements == ()
    assert (found.error or "").startswith("TorchRec's planner: ")
