"""Whether towers pay: bytes that leave a host by hand, seconds by the link, and what is said."""

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan
from recsmith.prediction.speeds import GPU_FLOPS
from recsmith.prediction.towers import tower_steps

MB = 1_000_000


def a_plan(hosts: int = 2) -> Plan:
    """26 tables of 64 columns on two ranks of each host, 512 samples a rank."""
    names = [f"t{i:02}" for i in range(26)]
    ranks = [(2 * (i // 13) if hosts == 2 else 0) + i % 2 for i in range(26)]
    placements = [placed(name, "table_wise", [rank]) for name, rank in zip(names, ranks, strict=True)]
    return plan_of(workload(*(table(name, dim=64) for name in names), batch_size=512), cluster(hosts), *placements)


def test_bytes_and_seconds_are_those_of_the_arithmetic() -> None:
    found = tower_steps(a_plan(), 8, step_s=0.1, link=25 * MB, dense=50_000)
    own = a_plan().cluster.links.inter_host_bandwidth * 2
    assert found.pooled_bytes == 2 * 1024 * 13 * 64 * 4  # forward and backward, of two ranks' samples
    assert found.other_bytes == round(1024 * 26 * 12 / 2 + 1.5 * 50_000 * 4)
    crossing = found.pooled_bytes + found.other_bytes
    assert found.plain_s == pytest.approx(0.1 + crossing / (25 * MB) - crossing / own)
    assert found.module_s == pytest.approx(6 * 1024 * (13 * 64) ** 2 / 8 / GPU_FLOPS)
    assert found.towers_s == pytest.approx(found.plain_s + found.module_s - found.pooled_bytes * 7 / 8 / (25 * MB))
    assert found.pays
    assert "towers pay" in str(found)


def test_a_fast_link_or_ratio_1_does_not_pay() -> None:
    fast = tower_steps(a_plan(), 8, step_s=0.1, link=1e12)
    assert not fast.pays
    assert "towers do not pay: they save less than 5% of a step" in str(fast)
    assert tower_steps(a_plan(), 1, step_s=0.1, link=1e6).gain == 1


def test_on_the_plans_own_links_the_step_is_the_one_that_was_predicted() -> None:
    """One plain step in one answer; without one, that of the embeddings as the plan counts it."""
    plan = a_plan()
    assert (tower_steps(plan, 4).link, tower_steps(plan, 4).plain_s) == (2e10, plan.cost.total_s)
    assert tower_steps(plan, 4, step_s=0.123).plain_s == 0.123
    assert tower_steps(plan, 4, step_s=0.123).towers_s < 0.123


def test_a_link_that_carries_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="the link between hosts is 0 Mbit/s"):
        tower_steps(a_plan(), 4, link=0.0)


def test_plans_without_towers_are_refused() -> None:
    with pytest.raises(UsageError, match="the plan is of one host, and towers save what crosses hosts"):
        tower_steps(a_plan(1), 8)
    with pytest.raises(UsageError, match="has 64 columns, and ratio 7 does not divide its columns"):
        tower_steps(a_plan(), 7)
    plan = plan_of(workload(table()), cluster(2), placed("a", "table_wise", [0]))
    with pytest.raises(PlanMismatch, match="no table on host 1"):
        tower_steps(plan, 8)
