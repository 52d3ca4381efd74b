"""Asks TorchRec whether it trains a grid_shard table whose ranges of columns lie on one host. Runs on all ranks."""

from typing import Any

import torch.distributed as dist

from recsmith.plans import Bound, Placement, Plan
from recsmith.sharding import ShardingType
from recsmith.sharding.types import GridShard
from recsmith.workloads import Workload
from support.build import table
from support.exactness import cpu_cluster, no_cost
from support.trained_exactness import compare_one


def on_one_host(steps: int, batch_size: int, optimizer: Any) -> dict[str, Any]:
    """Differences of outputs and weights from the unsharded model, and how far weights moved."""
    GridShard.column_counts = ShardingType.column_counts  # type: ignore[method-assign]
    world = dist.get_world_size()
    tables = (table("grid", 41, 32, pooling_factor=2.5),)
    cluster = cpu_cluster(world, 1)
    placed = Placement(
        table="grid", sharding_type="grid_shard", compute_kernel="fused", ranks=(*range(world), *range(world)),
        widths=(16, 16),
    )  # fmt: skip
    plan = Plan(
        workload=Workload(batch_size=batch_size, optimizer=optimizer, tables=tables), cluster=cluster,
        placements=(placed,), planner="hand", cost_model="torchrec", cost=no_cost(cluster),
        bound=Bound(value_s=None, kind="none", space=""), gap=None,
    )  # fmt: skip
    return compare_one(plan, optimizer, steps, batch_size)
