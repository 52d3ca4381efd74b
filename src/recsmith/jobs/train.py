"""Training a plan for real: the model under DistributedModelParallel, and beside it the same model unsharded.

Every function here runs on all ranks of a job (see launch.py).
"""

import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torchrec.optim
from torch import nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.modules import device_type
from recsmith.jobs.model import Batch, Model, adopt, random_batch
from recsmith.plans import Plan, plan_from_raw

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "eps": 1e-8}),
    "rowwise_adagrad": (torchrec.optim.RowWiseAdagrad, {"lr": 0.1, "eps": 1e-8}),
}


def device() -> torch.device:
    """This rank's device."""
    return (
        torch.device(device_type(), int(os.environ["LOCAL_RANK"])) if device_type() == "cuda" else torch.device("cpu")
    )


def whole_weights(plan: Plan, seed: int = 0) -> dict[str, torch.Tensor]:
    """The same starting weights on every rank, by table."""
    generator = torch.Generator().manual_seed(seed)
    return {
        table.name: torch.rand(table.num_embeddings, table.embedding_dim, generator=generator) - 0.5
        for table in sorted(plan.workload.tables, key=lambda table: table.name)
    }


def sharded_model(plan: Plan, optimizer: str) -> tuple[DistributedModelParallel, torch.optim.Optimizer | None]:
    """The plan's model, sharded, and the dense optimizer of its data_parallel tables (None where there are none)."""
    plan = adopt(plan)
    model = Model(plan.workload, torch.device("meta"))
    cls, keywords = OPTIMIZERS[optimizer]
    copies = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    for name, parameter in model.named_parameters():
        if table_of(name) not in copies:
            apply_optimizer_in_backward(cls, [parameter], dict(keywords))
    sharders = get_default_sharders()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sharded = DistributedModelParallel(
            model, device=device(), plan=to_sharding_plan(plan, model, sharders=sharders), sharders=sharders
        )
    dense = [parameter for name, parameter in sharded.named_parameters() if table_of(name) in copies]
    return sharded, cls(dense, **keywords) if dense else None


def table_of(parameter: str) -> str:
    """The table of a parameter's name, such as 'collections.0.embedding_bags.t0.weight'."""
    return parameter.removesuffix(".weight").rpartition(".")[2]


def local_shards(sharded: nn.Module) -> Iterator[tuple[str, tuple[int, int], torch.Tensor]]:
    """(table, (row, column) of its corner, weights) of every shard on this rank; copies stand at the corner (0, 0)."""
    for name, value in sharded.state_dict().items():
        if isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                row, column = shard.metadata.shard_offsets
                yield table_of(name), (row, column), shard.tensor
        else:
            yield table_of(name), (0, 0), value


def cut(whole: torch.Tensor, corner: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """The rectangle of a whole table that a shard holds."""
    return whole[corner[0] : corner[0] + shape[0], corner[1] : corner[1] + shape[1]]


def load_weights(sharded: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Write whole tables into this rank's shards."""
    with torch.no_grad():
        for table, corner, tensor in local_shards(sharded):
            tensor.copy_(cut(weights[table], corner, tensor.shape))


class Reference:
    """The unsharded model, trained on all ranks' batches at once: what sharding must not change."""

    def __init__(self, plan: Plan, optimizer: str, weights: dict[str, torch.Tensor]) -> None:
        self.model = Model(adopt(plan).workload, torch.device("cpu"))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[table_of(name)])
        cls, keywords = OPTIMIZERS[optimizer]
        self.optimizer = cls(self.model.parameters(), **keywords)

    def step(self, batches: list[Batch]) -> None:
        """One step on the mean of the ranks' losses."""
        self.optimizer.zero_grad()
        total = sum((loss(self.model(batch)) for batch in batches), torch.zeros(()))
        (total / len(batches)).backward()
        self.optimizer.step()

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


def train_step(sharded: nn.Module, dense: torch.optim.Optimizer | None, batch: Batch) -> None:
    """One step of the sharded model: fused optimizers step in backward, the dense one after it."""
    if dense is not None:
        dense.zero_grad()
    loss(sharded(batch)).backward()
    if dense is not None:
        dense.step()


def compare(plan: dict[str, Any], optimizers: list[str], steps: int, batch_size: int) -> list[dict[str, Any]]:
    """Train sharded and unsharded side by side, per optimizer: the largest differences of outputs and of weights.

    Differences of weights are by table, relative to its largest weight; NaN counts as infinite. `moved` is how far
    training took each table's weights, so that a table that was never trained cannot pass for an exact one.
    """
    made = plan_from_raw(plan, "job")
    return [_compare(made, optimizer, steps, batch_size) for optimizer in optimizers]


def _compare(plan: Plan, optimizer: str, steps: int, batch_size: int) -> dict[str, Any]:
    weights = whole_weights(plan)
    sharded, dense = sharded_model(plan, optimizer)
    load_weights(sharded, weights)
    reference = Reference(plan, optimizer, weights) if dist.get_rank() == 0 else None
    forward = 0.0
    for step in range(steps):
        batches = _batches(plan, step, batch_size)
        mine = batches[dist.get_rank()]
        if step == 0:
            whole = Reference(plan, optimizer, weights).model(mine)
            forward = _largest(sharded(mine.to(device())), whole)
        train_step(sharded, dense, mine.to(device()))
        if reference is not None:
            reference.step(batches)
    trained = _share(reference.weights() if reference is not None else {}, like=weights)
    return {
        "forward": forward,
        "weights": _apart(sharded, trained),
        "moved": {table: _finite((trained[table] - weights[table]).abs().max()) for table in trained},
    }


def _batches(plan: Plan, step: int, batch_size: int) -> list[Batch]:
    """The batches of all ranks for a step; every rank draws all of them, so that one can train on them all."""
    world = dist.get_world_size()
    seeds = (torch.Generator().manual_seed(step * world + rank) for rank in range(world))
    return [random_batch(plan.workload, batch_size, generator) for generator in seeds]


def _share(trained: dict[str, torch.Tensor], like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that rank 0 trained, on every rank."""
    shared: dict[str, torch.Tensor] = {}
    for table in sorted(like):
        whole = trained.get(table, torch.empty_like(like[table])).contiguous().to(device())
        dist.broadcast(whole, 0)
        shared[table] = whole.cpu()
    return shared


def _apart(sharded: nn.Module, trained: dict[str, torch.Tensor]) -> dict[str, float]:
    """How far this rank's shards are from whole trained tables."""
    apart: dict[str, float] = {}
    for table, corner, tensor in local_shards(sharded):
        difference = (tensor.cpu() - cut(trained[table], corner, tensor.shape)).abs().max()
        apart[table] = max(apart.get(table, 0.0), _finite(difference / trained[table].abs().max()))
    return apart


def _largest(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys(), (sorted(ours), sorted(theirs))
    return max(_finite((ours[key].cpu() - theirs[key]).abs().max()) for key in ours if theirs[key].numel())


def _finite(value: torch.Tensor) -> float:
    number = float(value)
    return number if number == number else float("inf")
