"""The fewest devices with so short a step are found by few plans, and what is said of fewer is so."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cluster, table, workload

from recsmith.analyses.fewest_nodes import turns
from recsmith.analyses.scaling import Point
from recsmith.analyses.sweep import sweep
from recsmith.clusters import load_cluster
from recsmith.errors import UsageError
from recsmith.problems import Space

WORK = workload(
    table("hot", 3000, 64, 20.0), table("wide", 20_000, 128, 1.0), table("small", 50, 16, 1.0), batch_size=64
)  # fmt: skip
FAST: dict[str, Any] = {"planner": "cost_greedy", "space": Space(widths="torchrec")}
SMALL = cluster(local=1, hbm=8_000_000)  # two hold the tables


def a_point(total_s: float | None) -> Point:
    figures = ("error", "digest", "bound_s", "gap", "memory_share", "samples_per_s", "device_s_per_step")
    none: dict[str, Any] = dict.fromkeys((*figures, "device_s_per_million"))
    return Point(
        device="test", per_host=1, devices=1, hosts=1, batch_size=1, global_batch_size=1, elapsed_s=0.0, knee=False,
        truncated=False, total_s=total_s, outcome="infeasible" if total_s is None else "planned", **none,
    )  # fmt: skip


@given(st.integers(0, 40), st.lists(st.floats(0.1, 9), min_size=0, max_size=60), st.floats(0.1, 9))
def test_the_first_of_a_falling_series_is_found(without: int, steps: list[float], limit: float):
    series = [None] * without + sorted(steps, reverse=True)
    if not series:
        return
    seen: dict[int, Point] = {}
    asking, found = turns(len(series), seen, limit), None
    try:
        while True:
            place = next(asking)
            assert place not in seen
            seen[place] = a_point(series[place])
    except StopIteration as end:
        found = end.value
    assert found == next((i for i, step in enumerate(series) if step is not None and step <= limit), None)
    assert len(seen) <= 4 * len(series).bit_length() + 2


def test_fewer_devices_are_proven_not_to_do():
    found = sweep(WORK, device=SMALL, fewest_under_s=1.0, **FAST)
    (fewest,) = found.fewest
    assert (fewest.devices, fewest.hosts, fewest.fewer, fewest.proven) == (2, 2, 1, True)
    assert [point.outcome for point in found.points] == ["infeasible", "planned"]
    assert fewest.total_s == found.points[1].total_s
    assert found.left == 0
    assert not found.knees


def test_a_shorter_step_takes_more_devices_and_none_has_no_time_at_all():
    batch = {"global_batches": (4096,), "devices": (1, 2, 4, 8)}
    steps = {each.devices: each.total_s for each in sweep(WORK, device=cluster(local=8), **batch, **FAST).points}
    limit = steps[4]
    assert limit is not None
    (fewest,) = sweep(WORK, device=cluster(local=8), fewest_under_s=limit, **batch, **FAST).fewest
    assert fewest.devices == min(count for count, step in steps.items() if step is not None and step <= limit)
    (fewest,) = sweep(WORK, device=cluster(local=8), fewest_under_s=1e-15, **batch, **FAST).fewest
    assert (fewest.devices, fewest.total_s, fewest.proven) == (None, None, False)


def test_a_series_for_each_batch_and_device():
    found = sweep(WORK, device=(SMALL, load_cluster("h100:1")), batch_sizes=(8, 16), fewest_under_s=1.0, **FAST)
    assert [(each.device, each.size, each.devices) for each in found.fewest] == [
        ("test", 8, 2), ("test", 16, 2), ("h100", 8, 1), ("h100", 16, 1),
    ]  # fmt: skip
    order = [(point.device, point.batch_size, point.devices) for point in found.points]
    assert order == sorted(order, key=lambda each: (each[0] != "test", *each[1:]))


def test_whole_hosts_are_tried_that_divide_the_global_batch():
    found = sweep(WORK, device=cluster(local=4), global_batches=(24,), fewest_under_s=1e-15, **FAST)
    assert {point.devices for point in found.points} <= {4, 8, 12, 24}
    with pytest.raises(UsageError, match="is no multiple of 4 devices"):
        sweep(WORK, device=cluster(local=4), global_batches=(6,), fewest_under_s=1.0, **FAST)
    with pytest.raises(UsageError, match="batch of 10 samples is no multiple of 4 devices"):
        sweep(WORK, device=cluster(local=4), global_batches=(8, 10), fewest_under_s=1.0, **FAST)
    with pytest.raises(UsageError, match="hosts have 4 and 8 devices; say which counts"):
        sweep(WORK, device=(cluster(local=4), "h100:8"), fewest_under_s=1.0, **FAST)
    with pytest.raises(UsageError, match="a step of 0 seconds cannot be"):
        sweep(WORK, device=cluster(local=4), fewest_under_s=0, **FAST)
    with pytest.raises(UsageError, match="global batch '24' cannot be; give whole numbers"):
        sweep(WORK, device=cluster(local=4), global_batches=cast(Any, ["24"]), fewest_under_s=1.0, **FAST)
