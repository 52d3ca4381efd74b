"""Whether towers pay: bytes that leave a host by hand, seconds by the link, and what is said."""

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan
from recsmith.prediction.towers import tower_steps

MB = 1_000_000


def a_plan(hosts: int = 2) -> Plan:
    """26 tables of 64 columns on two ranks of each host, 512 samples a rank."""
    names = [f"t{i:02}" for i in range(26)]
    ranks = [(2 * (i // 13) if hosts == 2 else 0) + i % 2 for i in range(26)]
    placements = [placed(name, "table_wise", [rank]) for name, rank in zip(names, ranks, strict=True)]
    return plan_of(workload(*(table(name, dim=64) for name in names), batch_size=512), cluster(hosts), *placements)


def test_bytes_and_seconds_are_those_of_the_arithmetic() -> None:
    found = tower_steps(a_plan(), 8, work_s=0.1, link=25 * MB, dense=50_000)
    assert found.pooled_bytes == 2 * 1024 * 13 * 64 * 4  # forward and backward, of two ranks' samples
    assert found.other_bytes == round(1024 * 26 * 12 / 2 + 1.5 * 50_000 * 4)
    assert found.plain_s == pytest.approx(0.1 + (found.pooled_bytes + found.other_bytes) / (25 * MB))
    assert found.module_s == pytest.approx(6 * 1024 * (13 * 64) ** 2 / 8 / 1e13)
    assert found.towers_s == pytest.approx(found.plain_s + found.module_s - found.pooled_bytes * 7 / 8 / (25 * MB))
    assert found.pays
    assert "towers pay" in str(found)


def test_a_fast_link_or_ratio_1_does_not_pay() -> None:
    fast = tower_steps(a_plan(), 8, work_s=0.1, link=1e12)
    assert not fast.pays
    assert "towers do not pay: they save less than 5% of a step" in str(fast)
    assert tower_steps(a_plan(), 1, work_s=0.1, link=1e6).gain == 1


def test_the_plans_own_links_and_work_stand_in() -> None:
    found = tower_steps(a_plan(), 4)
    assert (found.link, found.work_s) == (2e10, 0.5)


def test_plans_without_towers_are_refused() -> None:
    with pytest.raises(UsageError, match="the plan is of one host, and towers save what crosses hosts"):
        tower_steps(a_plan(1), 8)
    with pytest.raises(UsageError, match="has 64 columns, and ratio 7 does not divide its columns"):
        tower_steps(a_plan(), 7)
    plan = plan_of(workload(table()), cluster(2), placed("a", "table_wise", [0]))
    with pytest.raises(PlanMismatch, match="no table on host 1"):
        tower_steps(plan, 8)
