"""What each rank of a job runs whose pooled tables and sequences have sharding groups of two sizes, in tests."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsmith.jobs.sharded_model import load_weights, optimizer_of, rank_device, replicated
from recsmith.jobs.workload_model import WorkloadModel, with_model_collections
from recsmith.plans import plan_from_raw
from recsmith.problems import Space
from recsmith.torchrec import RecSmithPlanner
from support.trained_exactness import UnshardedModel, batches_of, starting_weights, train_step, weights_apart

BATCH_SIZE = 4
SPACE = Space(types=("table_wise", "row_wise"))


def train(plan: dict[str, Any], steps: int) -> dict[str, Any]:
    """Bags in groups of two ranks, sequences in one of all four; weights beside those of the unsharded model."""
    made = with_model_collections(plan_from_raw(plan, "job"))
    cls, keywords = optimizer_of("sgd")
    model, sharders = WorkloadModel(made.workload, torch.device("meta")), cast(Any, get_default_sharders())
    apply_optimizer_in_backward(cls, model.parameters(), dict(keywords))
    words: Any = {"batch_size": BATCH_SIZE, "iterations": 1, "space": SPACE}
    bags = RecSmithPlanner("cpu:4", sharding_group_size=2, only=EmbeddingBagCollection, **words)
    rows = RecSmithPlanner("cpu:4", sharding_group_size=4, only=EmbeddingCollection, beside=[bags], **words)
    of_bags, of_rows = (each.collective_plan(model, sharders, dist.group.WORLD) for each in (bags, rows))
    weights = starting_weights(made)
    sharded = replicated(
        model, of_bags, bags.cluster, device=rank_device(), sharders=sharders,
        submodule_configs=[rows.submodule_config(of_rows)],
    )  # fmt: skip
    load_weights(sharded, weights)
    reference = UnshardedModel(made, "sgd", weights)
    for step in range(steps):
        batches = batches_of(made, step, BATCH_SIZE)
        train_step(sharded, None, batches[dist.get_rank()])
        reference.step(batches)
        sharded.sync()
    return {"weights": weights_apart(sharded, reference.weights())}
