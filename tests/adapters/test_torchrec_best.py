"""The best of TorchRec's settings: no setting of the list beats it under the judge."""

from dataclasses import replace

import pytest

from recsmith.adapters.torchrec_settings import STOCK
from recsmith.bench.tasks import SPACE, DimRow, draw_tasks
from recsmith.costs import cost_model, step_seconds
from recsmith.errors import NoPlanFound
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.problems import build_problem, footprint_of

pytestmark = pytest.mark.usefixtures("torchrec")
SETTINGS = (STOCK, replace(STOCK, types=("column_wise",), min_partition="half"), replace(STOCK, order="perf"))


@pytest.fixture(scope="module")
def task() -> PlacementTask:
    return draw_tasks(DimRow(devices=4, max_dim=16), 1, 2026, "h100", 65_536).tasks[0]


def test_it_is_the_least_by_the_judge(task: PlacementTask):
    from recsmith.adapters.torchrec_best import best_of_settings
    from recsmith.adapters.torchrec_planner import plan_with_torchrec

    evaluator = cost_model("analytic").compile(build_problem(task.workload, task.cluster, SPACE))
    found, settings = best_of_settings(evaluator, SETTINGS)
    steps = {
        each: step_seconds(
            evaluator,
            footprint_of(evaluator.problem, plan_with_torchrec(task.workload, task.cluster, SPACE, each)),
        )
        for each in SETTINGS
    }
    assert step_seconds(evaluator, footprint_of(evaluator.problem, found)) == min(steps.values())
    assert steps[settings] == min(steps.values()) < max(steps.values())


def test_without_a_plan_under_any_setting_there_is_none(task: PlacementTask):
    from recsmith.adapters.torchrec_best import best_of_settings

    tight = build_problem(task.workload, task.cluster.with_memory(2**20), SPACE)
    with pytest.raises(NoPlanFound, match="under any of 3 settings"):
        best_of_settings(cost_model("analytic").compile(tight), SETTINGS)
