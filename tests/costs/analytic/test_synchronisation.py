"""The synchronisation of replicas: by hand, in the step and below it in the bound, and nowhere without replicas."""

from dataclasses import replace
from typing import Any

import pytest
from support.analytic import INTER, INTRA, case_of, cluster_of, priced, shared_by, terms_of
from support.cases import Case, brute_force, fits, random_placements, seeded, table

from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster, sharding_group
from recsmith.costs.analytic.synchronisation import synchronisation_of
from recsmith.problems import Space, footprint_of

NEVER = 10**9  # steps between synchronisations


def group_of(job: Cluster, size: int, **words: Any) -> Cluster:
    return sharding_group(job, size, **words)


def backward_comm(kind: str, on: Cluster, kernel: str = "fused", **words: Any) -> float:
    case = case_of(table("a", 1000, 128), on=on, space=Space(kernels=("fused", "dense", "fused_uvm")), **words)
    return float(terms_of(case, kind, kernel)[6])


def added(kind: str, job: Cluster, size: int, kernel: str = "fused", optimizer: str = "sgd", **layout: Any) -> float:
    """Seconds that a synchronisation every step adds to a piece of 1000 x 128 weights."""
    often, never = (group_of(job, size, **(layout | {"steps_per_sync": steps})) for steps in (1, NEVER))
    return backward_comm(kind, often, kernel, optimizer=optimizer) - backward_comm(
        kind, never, kernel, optimizer=optimizer
    )


def test_rings_by_hand() -> None:
    """Two hosts of four, groups of four: replicas are neighbours on a host, or by blocks one on each host."""
    job, weights = cluster_of(4, 2), 1000 * 128 * 4
    intra, inter = 3e11 * 0.75, 2e10 * 0.94
    assert added("table_wise", job, 4) == pytest.approx(weights / intra, rel=1e-6)  # 2 (n - 1) / n = 1 of 2 replicas
    assert added("table_wise", job, 4, use_inter_host_allreduce=True) == pytest.approx(weights / inter, rel=1e-6)
    assert added("row_wise", job, 4) == pytest.approx(weights / 4 / intra, rel=1e-6)  # a block of 250 rows
    # groups of two: four replicas on a host
    assert added("table_wise", job, 2) == pytest.approx(2 * 3 / 4 * weights / intra, rel=1e-6)


@pytest.mark.parametrize(("optimizer", "bytes_a_row"), [("sgd", 512), ("adagrad", 1024), ("rowwise_adagrad", 516)])
def test_optimizer_state_is_synchronised_too(optimizer: str, bytes_a_row: int) -> None:
    found = added("table_wise", cluster_of(4, 2), 4, optimizer=optimizer)
    assert found == pytest.approx(1000 * bytes_a_row / (3e11 * 0.75), rel=1e-6)


def test_weights_in_host_memory_cross_the_host_link() -> None:
    job = cluster_of(4, 2, host_link_bandwidth=1e10)
    assert added("table_wise", job, 4, "fused_uvm") == pytest.approx(1000 * 512 / (1e10 * 0.5), rel=1e-6)


def test_data_parallel_tables_are_reduced_over_the_whole_job_and_not_synchronised() -> None:
    job = cluster_of(4, 2)
    group = group_of(job, 4)
    assert added("data_parallel", job, 4, "dense") == pytest.approx(0, abs=1e-12)
    assert backward_comm("data_parallel", group, "dense") == backward_comm("data_parallel", job, "dense")
    case = case_of(table("a", 1000, 128), on=group, space=Space(kernels=("fused", "dense")))
    assert shared_by(case, "data_parallel", "dense") == (0, INTER)


def test_each_group_of_kernels_pays_its_share_of_a_latency() -> None:
    group = group_of(cluster_of(4, 2), 4, steps_per_sync=10)
    case = case_of(table("a", 1000, 128), on=group, space=Space(kernels=("fused", "dense")))
    forward, backward = shared_by(case, "table_wise")
    assert backward - forward == pytest.approx(INTRA / 10)  # replicas are on one host


def small_case(steps_per_sync: int) -> Case:
    group = group_of(cluster_of(2, 2), 2, steps_per_sync=steps_per_sync, use_inter_host_allreduce=True)
    tables = [table("a", 4000, 16), table("b", 900, 8, 5.0), table("c", 90, 8)]
    return case_of(*tables, on=group, space=Space(types=("table_wise", "column_wise", "row_wise", "data_parallel")))


@pytest.mark.parametrize("steps_per_sync", [1, 7])
def test_no_plan_lies_below_the_bound_and_the_exact_planner_finds_the_best(steps_per_sync: int) -> None:
    case = small_case(steps_per_sync)
    least = brute_force(case).least_s
    bound = lower_bound(case.evaluator).bound.value_s
    assert least is not None
    assert bound is not None
    assert 0 < bound <= least * (1 + 1e-9)
    assert case.plan("exact").plan.cost.total_s == pytest.approx(least, rel=1e-7)


def test_what_reports_say_is_what_the_step_holds() -> None:
    case = small_case(1)
    never = small_case(NEVER)
    for seed in range(10):
        placements = random_placements(seeded(seed), case)
        assert fits(case, placements)
        often, seldom = priced(case, *placements), priced(never, *placements)
        plan = replace(case.plan("random").plan, placements=placements)
        sync = synchronisation_of(plan)
        assert sync is not None
        rise = [a.backward_comm_s - b.backward_comm_s for a, b in zip(often.per_device, seldom.per_device, strict=True)]
        groups = len(set(case.evaluator.group[footprint_of(case.problem, placements).mode].tolist()))
        copies = any(each.sharding_type == "data_parallel" for each in placements)
        assert max(rise) == pytest.approx(sync.seconds + INTER * (groups - copies), rel=1e-6)
    assert synchronisation_of(replace(plan, cluster=cluster_of(2))) is None


def test_without_replicas_nothing_is_added() -> None:
    job = cluster_of(4, 2)
    assert backward_comm("table_wise", job) == backward_comm("table_wise", group_of(job, 8))
