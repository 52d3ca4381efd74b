"""Cases of planned tasks: what ranks hold in plans, the same again, within the scale."""

from dataclasses import replace

import pytest

from recsmith.costs import cost_model
from recsmith.errors import UsageError
from recsmith.hardware import SCALES
from recsmith.measuring.planned_cases import A_TASK, PlannedCases, device_of, planned_ahead

CASES = PlannedCases(seed=3, scale=SCALES["pools"], device="h100", model=cost_model("analytic"))


def test_a_task_gives_different_groups_of_one_batch_within_the_scale_and_the_same_again():
    found = [CASES.case(number) for number in range(A_TASK)]
    again = replace(CASES, model=cost_model("analytic")).case(1)
    assert again == found[1]
    assert [case.number for case in found] == list(range(A_TASK))
    assert len({case.workload.batch_size for case in found}) == 1
    assert len({replace(case, number=0) for case in found}) == A_TASK
    for case in found:
        case.check(SCALES["pools"])
        assert case.blocks == 1


def test_planning_ahead_changes_no_case(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.measuring.planned_cases.AHEAD", 2)
    numbers = [A_TASK - 1, 0]
    with planned_ahead(CASES) as ahead:
        assert [ahead.case(number) for number in numbers] == [CASES.case(number) for number in numbers]
        assert ahead.planned == CASES.planned
        assert len(ahead.plans) > 1


def test_plans_are_made_for_the_device_that_is_measured():
    assert [device_of(name) for name in ("simulated:h100?noise=0.1", "cuda:h200", "cpu")] == ["h100", "h200", "cpu"]
    with pytest.raises(UsageError, match="name the GPU, such as cuda:h200"):
        device_of("cuda")


def test_a_scale_that_no_group_fits_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("recsmith.measuring.planned_cases.ATTEMPTS", 1)
    with pytest.raises(UsageError, match="take a larger scale"):
        replace(CASES, scale=SCALES["check"]).case(0)
