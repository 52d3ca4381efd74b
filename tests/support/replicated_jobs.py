"""What each rank of a 2D job runs in tests: a plan by hand with every type, and one by the drop-in planner."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsmith.jobs.sharded_model import load_weights, optimizer_of, rank_device, replicated
from recsmith.jobs.workload_model import WorkloadModel, with_model_collections
from recsmith.plans import plan_from_raw
from recsmith.problems import Space
from recsmith.torchrec import RecSmithPlanner
from support.trained_exactness import (
    UnshardedModel,
    batches_of,
    compare_replicated,
    starting_weights,
    train_step,
    weights_apart,
)

BATCH_SIZE = 4


def train_both(averaged: dict[str, Any], one_model: dict[str, Any], steps: int) -> dict[str, Any]:
    """Two plans by hand, with and without steps between synchronisations, and a plan by the drop-in planner."""
    return {
        "averaged": compare_replicated(averaged, "adagrad", steps, BATCH_SIZE),
        "one_model": compare_replicated(one_model, "sgd", steps, BATCH_SIZE),
        "planned": _planned(one_model, steps),
    }


def _planned(plan: dict[str, Any], steps: int) -> dict[str, Any]:
    """Plan the same tables inside the job, on its global process group, and train them against the unsharded model."""
    made = with_model_collections(plan_from_raw(plan, "job"))
    cls, keywords = optimizer_of("sgd")
    model, sharders = WorkloadModel(made.workload, torch.device("meta")), get_default_sharders()
    apply_optimizer_in_backward(cls, model.parameters(), dict(keywords))
    replication = made.cluster.replication
    assert replication is not None
    planner = RecSmithPlanner(
        f"cpu:{replication.job_local_world_size}x{made.cluster.job_world_size // replication.job_local_world_size}",
        batch_size=BATCH_SIZE, sharding_group_size=made.cluster.world_size, iterations=1,
        space=Space(types=("table_wise", "column_wise", "row_wise")),
        use_inter_host_allreduce=replication.use_inter_host_allreduce,
    )  # fmt: skip
    sharding_plan = planner.collective_plan(model, cast(Any, sharders), dist.group.WORLD)
    weights = starting_weights(made)
    sharded = replicated(model, sharding_plan, planner.cluster, device=rank_device(), sharders=cast(Any, sharders))
    load_weights(sharded, weights)
    reference = UnshardedModel(made, "sgd", weights)
    for step in range(steps):
        batches = batches_of(made, step, BATCH_SIZE)
        train_step(sharded, None, batches[dist.get_rank()])
        reference.step(batches)
        sharded.sync()
    return {
        "weights": weights_apart(sharded, reference.weights()),
        "planned": planner.result is not None,
        "arguments": planner.dmp_collection_arguments(),
    }
