"""Whether a 2D job trains as it should: like one unsharded model per sharding group, averaged at every synchronisation.

Every group trains on the mean of its own ranks' losses; data_parallel tables on that of all ranks; and every
`steps_per_sync` steps weights and optimizer state are averaged over the groups. With SGD and a synchronisation every
step that is the one unsharded model, trained on the batches of all ranks.

Every function here runs on all ranks of a job (launch.py).
"""

from itertools import compress
from typing import Any, cast

import torch
import torch.distributed as dist

from recsmith.clusters import Replication, group_and_rank
from recsmith.jobs.exactness import UnshardedModel, batches_of, starting_weights, train_step, weights_apart
from recsmith.jobs.sharded_model import load_weights, rank_device, sharded_model, table_of
from recsmith.jobs.workload_model import CollectionBatch
from recsmith.plans import Plan, plan_from_raw


def compare_replicated(plan: dict[str, Any], optimizer: str, steps: int, batch_size: int) -> dict[str, Any]:
    """Train a 2D job and its reference side by side: how far this rank's shards are from it, by table.

    Differences are relative to the table's largest weight; NaN counts as infinite. `moved`: how far training took each
    table. `one_model`: how far the reference itself is from the one unsharded model trained on all batches. `group`:
    this rank's sharding group.
    """
    made = plan_from_raw(plan, "job")
    weights = starting_weights(made)
    sharded, dense = sharded_model(made, optimizer)
    load_weights(sharded, weights)
    reference, one_model = _Groups(made, optimizer, weights), UnshardedModel(made, optimizer, weights)
    replication = _replication(made)
    for step in range(1, steps + 1):
        batches = batches_of(made, step, batch_size)
        train_step(sharded, dense, batches[dist.get_rank()].to(rank_device()))
        reference.step(batches)
        one_model.step(batches)
        if step % replication.steps_per_sync == 0:
            cast(Any, sharded).sync()
            reference.sync()
    group, _ = group_and_rank(made.cluster, dist.get_rank())
    trained = reference.models[group].weights()
    return {
        "group": group,
        "weights": weights_apart(sharded, trained),
        "moved": {name: float((trained[name] - weights[name]).abs().max()) for name in trained},
        "one_model": _largest_difference(trained, one_model.weights()),
    }


class _Groups:
    """An unsharded model for each sharding group."""

    def __init__(self, plan: Plan, optimizer: str, weights: dict[str, torch.Tensor]) -> None:
        self.plan, self.cluster = plan, plan.cluster
        self.models = [UnshardedModel(plan, optimizer, weights) for _ in range(_replication(plan).replicas)]
        self.copies = {each.table for each in plan.placements if each.sharding_type == "data_parallel"}

    def step(self, batches: list[CollectionBatch]) -> None:
        """One step of each group on its own ranks' batches, data_parallel tables with the gradient of all of them."""
        for group, model in enumerate(self.models):
            own = [group_and_rank(self.cluster, rank)[0] == group for rank in range(len(batches))]
            model.backward(list(compress(batches, own)))
        for parameters in self._same_parameters(self.copies):
            mean = torch.stack([cast(torch.Tensor, parameter.grad) for parameter in parameters]).mean(dim=0)
            for parameter in parameters:
                parameter.grad = mean.clone()
        for model in self.models:
            model.optimizer.step()

    def sync(self) -> None:
        """Average weights and the optimizer state called `sum` over the groups."""
        sharded = {table.name for table in self.plan.workload.tables} - self.copies
        with torch.no_grad():
            for parameters in self._same_parameters(sharded):
                _average(parameters)
                states = [model.optimizer.state[each] for model, each in zip(self.models, parameters, strict=True)]
                if all("sum" in state for state in states):
                    _average([state["sum"] for state in states])

    def _same_parameters(self, tables: set[str]) -> list[tuple[torch.Tensor, ...]]:
        """The parameters of these tables, each with its twins in the other groups."""
        named = [dict(model.model.named_parameters()) for model in self.models]
        return [tuple(each[name] for each in named) for name in named[0] if table_of(name) in tables]


def _replication(plan: Plan) -> Replication:
    assert plan.cluster.replication is not None
    return plan.cluster.replication


def _average(tensors: Any) -> None:
    mean = torch.stack(list(tensors)).mean(dim=0)
    for tensor in tensors:
        tensor.copy_(mean)


def _largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
