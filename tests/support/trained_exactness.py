"""Whether a sharded model trains like the same model unsharded: both train side by side, and weights are compared.

A 2D job trains like one unsharded model per sharding group, averaged at every synchronisation: every group trains on
the mean of its own ranks' losses; data_parallel tables on that of all ranks; and every `steps_per_sync` steps weights
and optimizer state are averaged over the groups. With SGD and a synchronisation every step that is the one unsharded
model, trained on the batches of all ranks.

Every function here runs on all ranks of a job (launch.py).
"""

from itertools import compress
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from recsmith.clusters import Replication, group_and_rank
from recsmith.jobs.sharded_model import (
    load_weights,
    local_shards,
    optimizer_of,
    rank_device,
    shard_of,
    sharded_model,
    table_of,
)
from recsmith.jobs.workload_model import CollectionBatch, WorkloadModel, random_batch, with_model_collections
from recsmith.plans import Plan, plan_from_raw


def compare(plan: dict[str, Any], optimizers: list[str], steps: int, batch_size: int) -> list[dict[str, Any]]:
    """Train sharded and unsharded side by side, per optimizer: the largest differences of outputs and of weights.

    Differences of weights are by table, relative to its largest weight; NaN counts as infinite. `moved` is how far
    training took each table's weights, so that a table that was never trained cannot pass for an exact one.
    """
    made = plan_from_raw(plan, "job")
    return [compare_one(made, optimizer, steps, batch_size) for optimizer in optimizers]


def compare_one(plan: Plan, optimizer: str, steps: int, batch_size: int) -> dict[str, Any]:
    """The same under one optimizer."""
    weights = starting_weights(plan)
    sharded, dense = sharded_model(plan, optimizer)
    load_weights(sharded, weights)
    unsharded = UnshardedModel(plan, optimizer, weights) if dist.get_rank() == 0 else None
    forward = 0.0
    for step in range(steps):
        batches = batches_of(plan, step, batch_size)
        mine = batches[dist.get_rank()]
        if step == 0:
            whole = UnshardedModel(plan, optimizer, weights).model(mine)
            forward = _outputs_apart(sharded(mine.to(rank_device())), whole)
        train_step(sharded, dense, mine.to(rank_device()))
        if unsharded is not None:
            unsharded.step(batches)
    trained = _from_rank_0(unsharded.weights() if unsharded is not None else {}, like=weights)
    return {
        "forward": forward,
        "weights": weights_apart(sharded, trained),
        "moved": {table: _finite((trained[table] - weights[table]).abs().max()) for table in trained},
    }


def starting_weights(plan: Plan, seed: int = 0) -> dict[str, torch.Tensor]:
    """The same starting weights on every rank, by table."""
    generator = torch.Generator().manual_seed(seed)
    return {
        table.name: torch.rand(table.num_embeddings, table.embedding_dim, generator=generator) - 0.5
        for table in sorted(plan.workload.tables, key=lambda table: table.name)
    }


class UnshardedModel:
    """The unsharded model, trained on all ranks' batches at once: what sharding must not change."""

    def __init__(self, plan: Plan, optimizer: str, weights: dict[str, torch.Tensor]) -> None:
        self.model = WorkloadModel(with_model_collections(plan).workload, torch.device("cpu"))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[table_of(name)])
        cls, keywords = optimizer_of(optimizer)
        self.optimizer = cls(self.model.parameters(), **keywords)

    def step(self, batches: list[CollectionBatch]) -> None:
        """One step on the mean of the ranks' losses."""
        self.backward(batches)
        self.optimizer.step()

    def backward(self, batches: list[CollectionBatch]) -> None:
        """The gradients of the mean of the ranks' losses."""
        self.optimizer.zero_grad()
        total = sum((loss(self.model(batch)) for batch in batches), torch.zeros(()))
        (total / len(batches)).backward()

    def weights(self) -> dict[str, torch.Tensor]:
        """Weights by table."""
        return {table_of(name): parameter.detach() for name, parameter in self.model.named_parameters()}


def loss(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """A loss whose gradient differs by column and by value, and stays away from zero.

    So a shard in the wrong place shows, and rounding is not blown up where Adagrad divides by a first gradient.
    """
    total = torch.zeros(())
    for values in (outputs[key].float().cpu() for key in sorted(outputs)):
        column = torch.arange(values.shape[1])
        slope = (0.5 + 0.5 * column / values.shape[1]) * torch.where(column % 2 == 0, 1.0, -1.0)
        total = total + (slope * values + 0.02 * values**2).sum()
    return total / 100


def train_step(sharded: nn.Module, dense: torch.optim.Optimizer | None, batch: CollectionBatch) -> None:
    """One step of the sharded model: fused optimizers step in backward, the dense one after it."""
    if dense is not None:
        dense.zero_grad()
    loss(sharded(batch)).backward()
    if dense is not None:
        dense.step()


def batches_of(plan: Plan, step: int, batch_size: int) -> list[CollectionBatch]:
    """The batches of all ranks for a step; every rank draws all of them, so that one can train on them all."""
    world = dist.get_world_size()
    seeds = (torch.Generator().manual_seed(step * world + rank) for rank in range(world))
    return [random_batch(plan.workload, batch_size, generator) for generator in seeds]


def _from_rank_0(trained: dict[str, torch.Tensor], like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that rank 0 trained, on every rank."""
    shared: dict[str, torch.Tensor] = {}
    for table in sorted(like):
        whole = trained.get(table, torch.empty_like(like[table])).contiguous().to(rank_device())
        dist.broadcast(whole, 0)
        shared[table] = whole.cpu()
    return shared


def weights_apart(sharded: nn.Module, trained: dict[str, torch.Tensor]) -> dict[str, float]:
    """How far this rank's shards are from whole trained tables."""
    apart: dict[str, float] = {}
    for table, corner, tensor in local_shards(sharded):
        difference = (tensor.cpu() - shard_of(trained[table], corner, tensor.shape)).abs().max()
        apart[table] = max(apart.get(table, 0.0), _finite(difference / trained[table].abs().max()))
    return apart


def _outputs_apart(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    return max(_finite((ours[key].cpu() - theirs[key]).abs().max()) for key in ours if theirs[key].numel())


def _finite(value: torch.Tensor) -> float:
    number = float(value)
    return number if number == number else float("inf")


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
    reference, one_model = _UnshardedGroups(made, optimizer, weights), UnshardedModel(made, optimizer, weights)
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


class _UnshardedGroups:
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
