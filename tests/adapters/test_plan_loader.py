"""TorchRec's own planner takes the plan of a file, shard by shard, and refuses what is not its model's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exactness import cpu_cluster, every_type
from support.plans import two_tables

from recsmith.clusters import load_cluster, sharding_group
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Plan, save_plan

pytestmark = pytest.mark.usefixtures("torchrec")


def model_of(plan: Plan) -> tuple[Any, Plan]:
    """The plan's model, and the plan with the paths of its modules."""
    import torch

    from recsmith.jobs.workload_model import WorkloadModel, with_model_collections

    plan = with_model_collections(plan)
    return WorkloadModel(plan.workload, torch.device("meta")), plan


def loaded(source: Any, model: Any, plan: Plan) -> Any:
    """What TorchRec's planner makes of it."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.adapters.topology import to_topology
    from recsmith.torchrec import PlanFileLoader

    loader = PlanFileLoader(source, model)
    planner = EmbeddingShardingPlanner(
        topology=to_topology(plan.cluster), batch_size=plan.workload.batch_size, constraints=loader.constraints,
        storage_reservation=FixedPercentageStorageReservation(0.0), plan_loader=loader,
    )  # fmt: skip
    return planner.plan(model, get_default_sharders())


def facts(plan: Any) -> dict[tuple[str, str], Any]:
    """Type, kernel and shards of each table."""
    found: dict[tuple[str, str], Any] = {}
    for path, module in plan.plan.items():
        for name, each in module.items():
            shards = getattr(each.sharding_spec, "shards", ())
            places = [(s.shard_offsets, s.shard_sizes, str(s.placement)) for s in shards]
            found[path, name] = (each.sharding_type, each.compute_kernel, each.ranks, places)
    return found


BY_ROWS = ("row_wise", "table_row_wise", "grid_shard")  # TorchRec's planner has them on GPUs alone


@pytest.mark.parametrize("cluster", ["cpu:2", "h100:2", "h100:2x2"])
def test_every_type_comes_out_as_it_is_in_the_file(cluster: str, tmp_path: Path):
    from recsmith.torchrec import to_sharding_plan

    whole, device = every_type(load_cluster(cluster)), "cpu" if cluster.startswith("cpu") else "cuda"
    kept = {each.table for each in whole.placements if device == "cuda" or each.sharding_type not in BY_ROWS}
    tables = tuple(table for table in whole.workload.tables if table.name in kept)
    placements = tuple(each for each in whole.placements if each.table in kept)
    model, plan = model_of(replace(whole, workload=replace(whole.workload, tables=tables), placements=placements))
    save_plan(plan, tmp_path / "plan.json")
    made = loaded(tmp_path / "plan.json", model, plan)
    assert facts(made) == facts(to_sharding_plan(plan, model, device=device))


def test_uneven_columns_are_kept():
    from recsmith.torchrec import to_sharding_plan

    plan = two_tables()
    one = replace(
        plan.placements[0], sharding_type="column_wise", compute_kernel="fused", ranks=(0, 1), widths=(48, 16)
    )
    two = replace(one, table=plan.placements[1].table, sharding_type="table_wise", ranks=(1,), widths=())
    model, plan = model_of(replace(plan, placements=(one, two)))
    made = loaded(plan, model, plan)
    assert facts(made) == facts(to_sharding_plan(plan, model))
    assert [sizes[1] for _, sizes, _ in next(iter(facts(made).values()))[3]] == [48, 16]


def test_a_plan_of_another_model_is_refused():
    from recsmith.torchrec import PlanFileLoader

    model, plan = model_of(two_tables())
    bigger = replace(plan.workload.tables[0], num_embeddings=plan.workload.tables[0].num_embeddings + 1)
    other = replace(plan, workload=replace(plan.workload, tables=(bigger, *plan.workload.tables[1:])))
    with pytest.raises(PlanMismatch, match="weights in the module"):
        PlanFileLoader(other, model)


def test_what_torchrecs_planner_does_not_enumerate_is_refused_with_the_way_out():
    from recsmith.torchrec import PlanFileLoader

    model, plan = model_of(every_type(cpu_cluster(2, 1)))
    with pytest.raises(PlanMismatch, match=r"for (weighted_)?rw; give the plan itself to DistributedModelParallel"):
        PlanFileLoader(plan, model)


def test_plans_of_2d_jobs_are_refused_in_a_sentence():
    model, plan = model_of(two_tables())
    with pytest.raises(UsageError, match="2D job"):
        loaded(replace(plan, cluster=sharding_group(cpu_cluster(2, 2), 2)), model, plan)
