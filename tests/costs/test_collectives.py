"""Collectives: latencies, and what they carry by hand."""

from dataclasses import replace
from typing import Any

import pytest
from support.analytic import COUNTED, INTER, INTRA, case_of, cluster_of, placed, priced, shared_by, terms_of
from support.cases import Case, brute_force, fits, random_placements, seeded, table

from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster, load_cluster, sharding_group
from recsmith.costs.collectives import INTRA_HOST_EFFICIENCY, seconds_per_byte, synchronisation_of
from recsmith.problems import Space, footprint_of
from recsmith.sharding import TYPE_NAMES, Collective

NEVER = 10**9  # steps between synchronisations


@pytest.mark.parametrize(("local", "hosts"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_latencies_are_those_of_collectives_in_which_more_than_one_rank_takes_part(local: int, hosts: int) -> None:
    case = case_of(table("a", 1000, 128), on=cluster_of(local, hosts))
    host = INTRA if local > 1 else 0.0
    across = INTER if hosts > 1 else 0.0
    world = across or host
    for kind in ("table_wise", "column_wise", "table_column_wise", "row_wise"):
        assert shared_by(case, kind) == (world, world)
    assert shared_by(case, "table_row_wise") == pytest.approx((host + across, host + across))
    assert shared_by(case, "data_parallel", "dense") == (0, world)
    if hosts > 1:
        assert shared_by(case, "grid_shard") == pytest.approx((host + across, host + across))


def test_latencies_are_paid_once_for_each_group_in_use() -> None:
    tables = [table(name, 1000, 128) for name in "ab"]
    whole, split = (placed("b", kind, (1,)) for kind in ("table_wise", "column_wise"))
    case = case_of(*tables)
    for other, groups in ((whole, 1), (split, 2)):
        cost = priced(case, placed("a", "table_wise", (0,)), other)
        sent = terms_of(case, "table_wise")[5]
        assert [d.forward_comm_s for d in cost.per_device] == pytest.approx([groups * INTRA + sent] * 2, rel=1e-12)


def _carried(local: int, hosts: int, kind: str, kernel: str = "fused", **fields) -> tuple[float, float]:
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), on=cluster_of(local, hosts), batch_size=8, **fields)
    forward, backward = terms_of(case, kind, kernel, 64 if kind == "grid_shard" else None)[5:].tolist()
    return forward, backward


def test_what_collectives_carry_by_hand() -> None:
    """Three hosts of four: 96 bags of 512 bytes on every rank that takes part."""
    out, intra, inter = 96 * 512, 3e11 * 0.75, 2e10 * 0.94
    all_to_all = out * max(3 / 12 / intra, 8 / 12 / inter)
    ring = out * max(11 / 12 / intra, 11 / 12 / (4 * inter))
    on_host, across = out * 3 / 4 / intra, out * 2 / 3 / inter / 4
    for kind in ("table_wise", "column_wise", "table_column_wise"):
        assert _carried(4, 3, kind) == pytest.approx((all_to_all, all_to_all), rel=1e-12)
    assert _carried(4, 3, "row_wise") == pytest.approx((ring, ring), rel=1e-12)
    assert _carried(4, 3, "table_row_wise") == pytest.approx((on_host + across, on_host + across), rel=1e-12)
    half = (on_host + across) / 2
    assert _carried(4, 3, "grid_shard") == pytest.approx((half, half), rel=1e-12)
    reduced = 2 * 1000 * 512 * max(11 / 12 / intra, 11 / 12 / (4 * inter))
    assert _carried(4, 3, "data_parallel", "dense") == pytest.approx((0, reduced), rel=1e-12)


def test_rows_of_sequences_go_back_to_who_asked_however_they_are_laid() -> None:
    """480 ids of 512 bytes; in blocks of rows each of 12 ranks has its share of them."""
    made = table("a", 1000, 128, 5.0, access=COUNTED, pooling="none")
    case = case_of(made, on=cluster_of(4, 3), batch_size=8)
    whole = 480 * 512 * max(3 / 12 / (3e11 * 0.75), 8 / 12 / (2e10 * 0.94))
    assert terms_of(case, "table_wise")[5:] == pytest.approx([whole, whole], rel=1e-12)
    assert terms_of(case, "row_wise")[5:] == pytest.approx([whole / 12, whole / 12], rel=1e-12)
    assert terms_of(case, "data_parallel", "dense")[5] == 0


@pytest.mark.parametrize(
    ("comm_dtype", "share"), [(None, 1), ("fp32", 1), ("fp16", 1 / 2), ("bf16", 1 / 2), ("int8", 1 / 4)]
)
@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "table_row_wise", "grid_shard"])
def test_narrow_messages_carry_fewer_bytes(kind: str, comm_dtype, share: float) -> None:
    assert _carried(4, 3, kind, comm_dtype=comm_dtype) == pytest.approx([share * s for s in _carried(4, 3, kind)])


def test_the_backward_type_of_messages_is_that_of_the_workload_where_it_differs() -> None:
    whole = _carried(4, 3, "table_wise")
    for forward, backward, shares in ((None, "fp16", (1, 1 / 2)), ("int8", "fp32", (1 / 4, 1))):
        narrow = _carried(4, 3, "table_wise", comm_dtype=forward, backward_comm_dtype=backward)
        assert narrow == pytest.approx([share * s for share, s in zip(shares, whole, strict=True)])


def test_one_device_has_every_type_but_grid_shard() -> None:
    """Grids need columns on more than one host."""
    case = case_of(table("a", 1000, 128, 5.0), on=cluster_of(1))
    found = {TYPE_NAMES[kind] for kind in case.problem.modes.type.tolist()}
    assert found == set(TYPE_NAMES) - {"grid_shard"}


@pytest.mark.parametrize("kind", [kind for kind in TYPE_NAMES if kind != "grid_shard"])
def test_one_device_sends_nothing(kind: str) -> None:
    case = case_of(table("a", 1000, 128, 5.0), on=cluster_of(1))
    cost = priced(case, placed("a", kind, (0,), "dense" if kind == "data_parallel" else "fused"))
    (only,) = cost.per_device
    assert only.forward_comm_s == only.backward_comm_s == 0
    assert cost.total_s == only.forward_compute_s + only.backward_compute_s


def test_a_plan_for_one_device_has_no_gap() -> None:
    assert case_of(*(table(f"t{i}", 1000, 8) for i in range(3)), on=cluster_of(1)).plan().plan.gap == pytest.approx(
        0, abs=1e-8
    )


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


def test_replicas_that_are_fully_sharded_exchange_weights_alone_with_two_calls() -> None:
    group = group_of(cluster_of(4, 2), 4, fully_sharded=True)
    never = group_of(cluster_of(4, 2), 4, steps_per_sync=NEVER)
    space = Space(kernels=("fused", "dense"))
    both = [case_of(table("a", 1000, 128), on=on, space=space, optimizer="adagrad") for on in (group, never)]
    weights, still = (float(terms_of(case, "table_wise", "fused")[6]) for case in both)
    assert weights - still == pytest.approx(1000 * 512 / (3e11 * 0.75), rel=1e-6)
    forward, backward = shared_by(both[0], "table_wise")
    assert backward - forward == pytest.approx(2 * INTRA)


def test_weights_in_host_memory_cross_the_host_link() -> None:
    job = cluster_of(4, 2, host_link_bandwidth=1e10)
    assert added("table_wise", job, 4, "fused_uvm") == pytest.approx(1000 * 512 / (1e10 * 0.68), rel=1e-6)


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


@pytest.mark.parametrize("local", [2, 4, 8])
def test_fewer_devices_of_a_mesh_use_the_links_that_they_have(local: int):
    """One link of 64 GB/s a pair: an all-to-all of any number of devices sends each other one its part over its own."""
    cluster = load_cluster(f"mi300x:{local}")
    seconds = seconds_per_byte(Collective("all_to_all", "world"), cluster)
    assert seconds == pytest.approx(1 / local / (64e9 * INTRA_HOST_EFFICIENCY))
