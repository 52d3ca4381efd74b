"""Whether towers pay: bytes that leave a host by hand, seconds by the link, and what is said."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload

import recsmith
from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan
from recsmith.prediction.speeds import GPU_FLOPS
from recsmith.prediction.towers import saved_by_plain_plan, tower_steps
from recsmith.problems import Constraints, Space, constraints_to_raw
from recsmith.units import format_time

MB = 1_000_000


def a_plan(hosts: int = 2) -> Plan:
    """26 tables of 64 columns on two ranks of each host, 512 samples a rank."""
    names = [f"t{i:02}" for i in range(26)]
    ranks = [(2 * (i // 13) if hosts == 2 else 0) + i % 2 for i in range(26)]
    placements = [placed(name, "table_wise", [rank]) for name, rank in zip(names, ranks, strict=True)]
    return plan_of(workload(*(table(name, dim=64) for name in names), batch_size=512), cluster(hosts), *placements)


def test_bytes_and_seconds_are_those_of_the_arithmetic() -> None:
    found = tower_steps(a_plan(), 8, step_s=0.1, link=25 * MB, dense=50_000, plain_s=1.0)
    own = a_plan().cluster.links.inter_host_bandwidth * 2
    assert found.pooled_bytes == 2 * 1024 * 13 * 64 * 4  # forward and backward, of two ranks' samples
    assert found.other_bytes == round(1024 * 26 * 12 / 2 + 1.5 * 50_000 * 4)
    crossing = found.pooled_bytes + found.other_bytes
    assert found.under_s == found.plain_s == pytest.approx(0.1 + crossing / (25 * MB) - crossing / own)
    assert found.module_s == pytest.approx(6 * 1024 * (13 * 64) ** 2 / 8 / GPU_FLOPS)
    assert found.towers_s == pytest.approx(found.plain_s + found.module_s - found.pooled_bytes * 7 / 8 / (25 * MB))
    assert found.pays
    assert "towers pay in time, and cost AUC: those of ratio 8 were -0.63 ± 0.44 points" in str(found)


def test_towers_must_beat_plain_tables_under_their_own_plan() -> None:
    """Tables of 100 rows are cheaper as copies, whose gradients alone cross hosts: a plan of towers may not have them.

    A step that takes four times as long beside one plan is what towers would save; beside the other they lose.
    """
    plan, link = plan_as_priced(a_plan()), 25 * MB
    under = tower_steps(plan, 4, step_s=0.1, link=link, plain_s=1.0)
    found = tower_steps(plan, 4, step_s=0.1, link=link)
    assert (found.under_s, found.towers_s) == (under.under_s, under.towers_s)
    assert under.pays
    assert found.plain_s < found.towers_s
    assert not found.pays
    own = simulate(replace(plan, cluster=at(plan, link), digest=""), bound=False)
    best = recsmith.plan(own.workload, own.cluster, cost_model=own.cost_model).plan
    assert saved_by_plain_plan(plan, 1e6, link) == pytest.approx(own.cost.step_s - best.cost.step_s)
    assert f"{format_time(found.plain_s)} under the plan made without towers ({format_time(found.under_s)}" in str(
        found
    )


def plan_as_priced(plan: Plan) -> Plan:
    return replace(simulate(plan, bound=False), constraints=constraints_to_raw(Space(), Constraints()))


def at(plan: Plan, link: float) -> Cluster:
    links = replace(plan.cluster.links, inter_host_bandwidth=link / plan.cluster.local_world_size)
    return replace(plan.cluster, links=links)


def test_a_fast_link_or_ratio_1_does_not_pay() -> None:
    fast = tower_steps(a_plan(), 8, step_s=0.1, link=1e12, plain_s=1.0)
    assert not fast.pays
    assert "towers do not pay: that " in str(fast)
    assert tower_steps(a_plan(), 1, step_s=0.1, link=1e6, plain_s=1e9).gain == 1


def test_on_the_plans_own_links_the_step_is_the_one_that_was_predicted() -> None:
    """One plain step in one answer; without one, that of the embeddings as the plan counts it."""
    plan = a_plan()
    assert (tower_steps(plan, 4).link, tower_steps(plan, 4).under_s) == (2e10, plan.cost.total_s)
    assert tower_steps(plan, 4, step_s=0.123).under_s == 0.123
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
