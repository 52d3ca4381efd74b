"""What a plan costs: busy and waiting seconds, devices that are too full, and the gap to the bound."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.errors import UsageError
from recsmith.plans import PARTS, Bound, DeviceCost, StepCost

DEVICE = DeviceCost(
    rank=0, forward_compute_s=1.0, backward_compute_s=2.0, forward_comm_s=4.0, backward_comm_s=8.0, wait_s=16.0,
    hbm_bytes=10, hbm_capacity_bytes=10,
)  # fmt: skip


def bound(value_s: float | None) -> Bound:
    return Bound(value_s=value_s, kind="relaxation", space="all types")


def test_a_device_is_busy_in_its_parts_and_not_while_it_waits():
    assert DEVICE.busy_s == sum(getattr(DEVICE, part) for part in PARTS) == 15.0


def test_the_mean_is_of_busy_seconds():
    other = replace(DEVICE, rank=1, forward_compute_s=3.0)
    assert StepCost(total_s=31.0, per_device=(DEVICE, other)).mean_s == 16.0


def test_a_device_is_overfull_above_its_capacity():
    full, over = DEVICE, replace(DEVICE, rank=1, hbm_bytes=11)
    assert StepCost(total_s=31.0, per_device=(full, over)).overfull == (over,)


@pytest.mark.parametrize(
    ("value_s", "total_s", "gap"),
    [(None, 1.0, None), (1.0, 1.0, 0.0), (1.0, 1.5, 0.5), (2.0, 3.0, 0.5), (1.0, 1 - 1e-10, 0.0), (0.0, 1.0, None)],
)
def test_the_gap_is_total_over_bound_less_1(value_s: float | None, total_s: float, gap: float | None):
    assert bound(value_s).gap(total_s) == gap


def test_a_plan_below_its_bound_lies_outside_the_space():
    with pytest.raises(UsageError, match=r"0\.9 s lies below its bound of 1\.0 s: the plan is not in the space"):
        bound(1.0).gap(0.9)


def test_a_plan_is_frozen():
    made = plan_of(workload(table("a")), cluster(), placed("a", "table_wise", [0]))
    with pytest.raises(AttributeError):
        made.gap = 1.0  # pyright: ignore[reportAttributeAccessIssue]
