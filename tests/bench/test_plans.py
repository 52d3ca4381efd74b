"""Plans of a task: by planners with a cost model of their own, and why there are none."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.benched import TASK

from recsmith.bench.plans import attempt, check_planners, default_model
from recsmith.bench.sharding import BenchResults
from recsmith.errors import UsageError


@pytest.mark.parametrize(
    "word", ["aut", "auto@neurl", "torchrec@analytic", "torchrec_best@analytic", "auto@neural:none.safetensors"]
)
def test_unknown_planners_and_cost_models_are_refused(word: str):
    with pytest.raises(UsageError):
        check_planners([word], "analytic", TASK)


def test_a_planner_may_have_a_cost_model_of_its_own(whole: tuple[Path, BenchResults]):
    check_planners(["auto@torchrec"], "analytic", TASK)
    own, other = (attempt(word, TASK, "analytic", 0) for word in ("cost_greedy", "cost_greedy@torchrec"))
    assert own.placements
    assert other.placements
    assert own.placements == whole[1].attempts[TASK.name, "cost_greedy"].placements


def test_what_a_cost_model_warns_of_is_said_once_for_all_planners():
    with pytest.warns(UserWarning, match="no device was measured") as said:
        check_planners(["auto", "cost_greedy", "random"], "neural:simulated-h100", TASK)
    assert len(said) == 1


def test_the_learned_model_of_the_hardware_is_the_default():
    assert default_model("cpu") == "neural:cpu"
    assert default_model("simulated:v100-32?noise=0.1") == default_model("cuda:v100-32") == "analytic"


def test_a_task_without_room_has_an_error_instead_of_placements():
    tight = replace(TASK, cluster=TASK.cluster.with_memory(2**20))
    found = attempt("size_greedy", tight, "analytic", 0)
    assert found.placements == ()
    assert found.error
    assert found.plan_s > 0
