"""Plans to TorchRec's ShardingPlan and back lose nothing, and what TorchRec cannot run is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.cases import cluster, medium_case, random_placements, seeded, workload
from support.cases import table as a_table
from support.exactness import cpu_cluster, every_type

from recsmith.errors import PlanMismatch
from recsmith.plans import Cache, Placement, Plan, check_placements, sorted_by_name
from recsmith.workloads import Feature

pytestmark = pytest.mark.usefixtures("torchrec")
PLANS, MANY_PLANS = 60, 1000


def _model(plan: Plan) -> Any:
    import torch

    from recsmith.jobs.workload_model import WorkloadModel

    return WorkloadModel(plan.workload, torch.device("meta"))


def _random_plan(seed: int) -> Plan | None:
    """A random plan for `Model`; None where its sequence tables would share a collection with different widths."""
    from recsmith.jobs.workload_model import with_model_collections

    case = medium_case(seeded(seed))
    tables = tuple(replace(table, data_type="fp32") for table in case.workload.tables)
    placements = random_placements(seeded(seed), case)
    blank = every_type(cpu_cluster(1, 1))
    workload = sorted_by_name(replace(case.workload, tables=tables))
    plan = with_model_collections(replace(blank, workload=workload, cluster=case.cluster, placements=placements))
    try:
        check_placements(plan.placements, plan.workload, plan.cluster)
    except PlanMismatch as error:
        assert "one width per collection" in str(error)
        return None
    return plan


@pytest.mark.parametrize("plans", [PLANS, pytest.param(MANY_PLANS, marks=pytest.mark.soak)])
def test_random_plans_survive_the_way_to_torchrec_and_back(plans: int) -> None:
    from recsmith.torchrec import from_sharding_plan, to_sharding_plan

    made, seed = 0, 0
    while made < plans:
        plan, seed = _random_plan(seed), seed + 1
        if plan is None:
            continue
        made += 1
        sharding_plan = to_sharding_plan(plan, _model(plan), device="cpu")
        assert from_sharding_plan(sharding_plan, plan.workload, plan.cluster) == plan.placements


@pytest.mark.parametrize(("kernel", "share"), [("fused_uvm_caching", 0.3), ("key_value", 0.2)])
def test_the_share_of_a_cache_survives(kernel: str, share: float) -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import from_sharding_plan, to_sharding_plan

    made = workload(a_table("a", 1000, 8))
    placed = Placement(
        table="a", sharding_type="row_wise", compute_kernel=kernel, ranks=(0, 1), cache=Cache(load_factor=share)
    )
    blank = every_type(cpu_cluster(1, 1))
    plan = with_model_collections(replace(blank, workload=made, cluster=cluster(2), placements=(placed,)))
    sharding_plan = to_sharding_plan(plan, _model(plan), device="cpu")
    assert from_sharding_plan(sharding_plan, plan.workload, plan.cluster) == plan.placements


def test_every_shard_stands_where_the_plan_says() -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import to_sharding_plan

    plan = with_model_collections(every_type(cpu_cluster(2, 2)))
    found: list[tuple[str, int, list[int], list[int]]] = []
    for module in to_sharding_plan(plan, _model(plan), device="cuda").plan.values():
        for name, parameter in module.items():  # type: ignore[attr-defined]
            shards = parameter.sharding_spec.shards if parameter.sharding_spec else []
            for shard in shards:
                assert str(shard.placement) == f"rank:{shard.placement.rank()}/cuda:{shard.placement.rank() % 2}"
                found.append((name, shard.placement.rank(), shard.shard_offsets, shard.shard_sizes))
    copies = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    expected = [
        (s.table, s.rank, [s.rows[0], s.columns[0]], [s.rows[1] - s.rows[0], s.columns[1] - s.columns[0]])
        for s in plan.shards()
        if s.table not in copies
    ]
    assert sorted(found) == sorted(expected)


ILLEGAL: list[tuple[str, Callable[[Placement], Placement], str]] = [
    ("cw", lambda p: replace(p, widths=(18, 14)), "multiples of 4"),
    ("cw", lambda p: replace(p, widths=(16, 8)), "add up to 24"),
    ("cw", lambda p: replace(p, ranks=(0, 9)), "rank 9 is not one of"),
    ("cw_uneven", lambda p: replace(p, ranks=(0, 0)), "equally wide"),
    ("twcw", lambda p: replace(p, ranks=(0, 3)), "one host"),
    ("grid", lambda p: replace(p, widths=(20, 12)), "equal ones"),
    ("grid", lambda p: replace(p, ranks=(0, 1), widths=(32,)), "between 2 and"),
    ("grid", lambda p: replace(p, ranks=(1, 2, 3, 0)), "in order"),
    ("twrw", lambda p: replace(p, ranks=(1, 2)), "in order"),
    ("rw", lambda p: replace(p, ranks=(0, 1, 2)), "all ranks"),
    ("dp", lambda p: replace(p, compute_kernel="fused"), "runs dense"),
    ("tw", lambda p: replace(p, compute_kernel="dense"), "runs fused"),
    ("seq_tw", lambda p: replace(p, sharding_type="table_row_wise", ranks=(0, 1)), "sequence tables"),
    ("seq_cw", lambda p: replace(p, widths=(12, 4)), "equal ones"),
    ("tw", lambda p: replace(p, sharding_type="twisted"), "sharding_type 'twisted'"),
]


@pytest.mark.parametrize(("table", "change", "why"), ILLEGAL)
def test_what_torchrec_cannot_run_is_refused(table: str, change: Callable[[Placement], Placement], why: str) -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import to_sharding_plan

    plan = with_model_collections(every_type(cpu_cluster(2, 2)))
    placements = tuple(change(p) if p.table == table else p for p in plan.placements)
    with pytest.raises(PlanMismatch, match=why):
        to_sharding_plan(replace(plan, placements=placements), _model(plan), device="cpu")


def test_rows_too_few_for_every_rank_are_refused() -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import to_sharding_plan

    plan = every_type(cpu_cluster(2, 2))
    tables = tuple(replace(t, num_embeddings=3) if t.name == "rw" else t for t in plan.workload.tables)
    plan = with_model_collections(replace(plan, workload=replace(plan.workload, tables=tables)))
    with pytest.raises(PlanMismatch, match="leave a rank of 4 empty"):
        to_sharding_plan(plan, _model(plan), device="cpu")


def test_shards_that_their_type_would_not_give_are_refused() -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import from_sharding_plan, to_sharding_plan

    plan = with_model_collections(every_type(cpu_cluster(2, 2)))
    for table, sizes in (("rw", [10, 16]), ("cw", [41, 20])):
        made = to_sharding_plan(plan, _model(plan), device="cpu")
        module = next(module for module in made.plan.values() if table in module)  # type: ignore[operator]
        module[table].sharding_spec.shards[0].shard_sizes = sizes  # type: ignore[index]
        with pytest.raises(PlanMismatch):
            from_sharding_plan(made, plan.workload, plan.cluster)


def test_a_plan_for_another_model_is_refused() -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import to_sharding_plan

    plan = with_model_collections(every_type(cpu_cluster(2, 1)))
    fewer = replace(plan.workload, tables=plan.workload.tables[1:])
    with pytest.raises(PlanMismatch, match="which the module does not have"):
        to_sharding_plan(plan, _model(replace(plan, workload=fewer)), device="cpu")
    taller = tuple(replace(t, num_embeddings=99) if t.name == "tw" else t for t in plan.workload.tables)
    with pytest.raises(PlanMismatch, match="has 99 x 16 weights in the module and 41 x 16 in the plan"):
        to_sharding_plan(plan, _model(replace(plan, workload=replace(plan.workload, tables=taller))), device="cpu")


def test_constraints_for_torchrecs_own_planner_name_type_kernel_and_width() -> None:
    from recsmith.torchrec import to_parameter_constraints

    made = to_parameter_constraints(every_type(cpu_cluster(2, 2)))
    assert made["cw"].sharding_types == ["column_wise"]
    assert made["cw"].min_partition == 16
    assert made["dp"].compute_kernels == ["dense"]
    assert made["tw"].pooling_factors == [2.5, 2.5]
    assert made["weighted_tw"].is_weighted


def test_constraints_for_torchrecs_own_planner_keep_the_batch_sizes_of_some_features() -> None:
    from recsmith.torchrec import to_parameter_constraints

    plan = every_type(cpu_cluster(2, 2))
    features = tuple(Feature(name=name, pooling_factor=1.0, batch_size=size) for name, size in (("a", 7), ("b", None)))
    tables = tuple(replace(t, features=features) if t.name == "tw" else t for t in plan.workload.tables)
    made = to_parameter_constraints(replace(plan, workload=replace(plan.workload, tables=tables)))
    assert made["tw"].batch_sizes == [7, plan.workload.batch_size]
    assert made["cw"].batch_sizes is None


def test_what_fbgemm_stops_at_on_cpu_where_batch_sizes_vary_goes_to_no_job() -> None:
    from recsmith.jobs.workload_model import with_model_collections
    from recsmith.torchrec import to_sharding_plan

    blank = every_type(cpu_cluster(1, 1))
    first = replace(a_table("a", 20, 8), features=(Feature(name="a", pooling_factor=1.0, batch_size=2),))
    for other, kind, refused in (
        (a_table("b", 20, 8, pooling="mean"), "table_wise", True),
        (a_table("b", 20, 8, data_type="fp16"), "table_wise", True),
        (a_table("b", 20, 8), "table_wise", False),
        (a_table("b", 20, 8, pooling="mean"), "column_wise", False),
        (a_table("b", 20, 8, pooling="mean", collection="own"), "table_wise", False),
    ):
        placed = tuple(
            Placement(table=name, sharding_type=each, compute_kernel="fused", ranks=(0,))
            for name, each in (("a", "table_wise"), ("b", kind))
        )
        plan = replace(blank, workload=workload(first, other), placements=placed)
        if refused:
            with pytest.raises(
                PlanMismatch, match=r"rank 0 holds 'a' \(sum, fp32\) and 'b' \((mean, fp32|sum, fp16)\)"
            ):
                to_sharding_plan(plan, _model(plan))
            to_sharding_plan(replace(plan, cluster=cluster(1)), _model(plan), device="cpu")
        else:
            to_sharding_plan(with_model_collections(plan), _model(with_model_collections(plan)))
