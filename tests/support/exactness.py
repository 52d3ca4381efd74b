"""A plan by hand with every sharding type, for one world size."""

from collections.abc import Sequence

from recsmith import Bound, Cluster, Feature, Placement, Plan, StepCost, Table, Workload, load_cluster
from recsmith.plans import PARTS, DeviceCost, sorted_by_name
from support.build import table

COLUMN_SPLITS = {"cw", "cw_uneven", "cw_two_on_a_rank", "twcw", "grid", "grid_on_a_host", "seq_cw", "weighted_cw"}


def _table(name: str, dim: int = 16, collection: str = "") -> Table:
    weighted = name.startswith("weighted")
    features = tuple(Feature(name=f"{name}_{i}", pooling_factor=2.5, weighted=weighted) for i in range(2))
    pooling = "none" if name.startswith("seq") else "mean" if name.startswith("mean") else "sum"
    own = name if pooling == "mean" else ""  # means are split by rows rightly where they are alone, or all tables are
    return table(name, 41, dim, features=features, pooling=pooling, collection=collection or own)


def every_type(cluster: Cluster) -> Plan:
    """All types, kernels and shapes that run on the cluster: mixed, uneven, weighted, sequences, several features."""
    world, local, last = cluster.world_size, cluster.local_world_size, cluster.world_size - 1
    everyone: Sequence[int] = range(world)
    rows: list[tuple[Table, str, Sequence[int], Sequence[int]]] = [
        (_table("tw"), "table_wise", [last], ()),
        (_table("mean"), "table_wise", [0], ()),
        (_table("mean_rw"), "row_wise", everyone, ()),
        (_table("mean_twrw"), "table_row_wise", range(local), ()),
        (_table("mean_beside_rw", collection="rows"), "row_wise", everyone, ()),
        (_table("mean_beside_twrw", collection="rows"), "table_row_wise", range(local), ()),
        (_table("sum_beside_rw", collection="rows"), "row_wise", everyone, ()),
        (_table("cw", 32), "column_wise", [0, last], (16, 16)),
        (_table("cw_two_on_a_rank", 32), "column_wise", [last, 0, 0], (16, 8, 8) if world > 1 else ()),
        (_table("rw"), "row_wise", everyone, ()),
        (_table("dp"), "data_parallel", everyone, ()),
        (_table("twrw"), "table_row_wise", range(world - local, world), ()),
        (_table("twcw", 32), "table_column_wise", [0, local - 1], (16, 16)),
        (_table("weighted_tw"), "table_wise", [0], ()),
        (_table("weighted_rw"), "row_wise", everyone, ()),
        (_table("weighted_cw", 32), "column_wise", [last, 0], (16, 16)),
        (_table("seq_tw"), "table_wise", [last], ()),
        (_table("seq_rw"), "row_wise", everyone, ()),
        (_table("seq_cw"), "column_wise", [0, last], (8, 8)),
    ]
    if world == 1:
        rows = [row for row in rows if row[0].name != "cw_two_on_a_rank"]
    else:
        rows.append((_table("cw_uneven", 32), "column_wise", [last, 0], (20, 12)))
    if cluster.replication is not None:
        rows = [row for row in rows if row[1] != "table_column_wise"]  # TorchRec's DMPCollection does not run it
    if cluster.hosts > 1:
        rows.append((_table("grid", 32), "grid_shard", everyone, (16, 16)))
        rows.append((_table("grid_on_a_host", 32), "grid_shard", [*range(local), *range(local)], (16, 16)))
    placements = [
        Placement(
            table=table.name, sharding_type=kind, compute_kernel="dense" if kind == "data_parallel" else "fused",
            ranks=tuple(ranks), widths=tuple(widths),
        )
        for table, kind, ranks, widths in rows
    ]  # fmt: skip
    workload = Workload(batch_size=4, optimizer="sgd", tables=tuple(table for table, *_ in rows))
    return Plan(
        workload=sorted_by_name(workload), cluster=cluster,
        placements=tuple(sorted(placements, key=lambda placement: placement.table)),
        planner="hand", cost_model="torchrec", cost=no_cost(cluster),
        bound=Bound(value_s=None, kind="none", space=""), gap=None,
    )  # fmt: skip


def no_cost(cluster: Cluster) -> StepCost:
    """A cost that names every device, as plan files need, and says nothing."""
    parts = dict.fromkeys(PARTS, 0.0)
    return StepCost(
        total_s=0.0,
        per_device=tuple(
            DeviceCost(rank=rank, **parts, wait_s=0.0, hbm_bytes=0, hbm_capacity_bytes=size)
            for rank, size in enumerate(cluster.capacities)
        ),
    )


def cpu_cluster(local: int, hosts: int) -> Cluster:
    """CPU ranks on emulated hosts."""
    return load_cluster(f"cpu:{local}x{hosts}")
