"""Memory of a rank for all but its embedding shards: estimated from the model before anything is trained.

Parameters outside of the planned collections are trained by DistributedDataParallel on every rank, as
DefaultDataParallelWrapper of torchrec/distributed/model_parallel.py wraps them: gradients are views of DDP's buckets
(gradient_as_bucket_view=True), so they are held once. Activations and the CUDA context are not counted: parameters do
not tell them.

What remaps ids in managed-collision collections (zero collision hashing, ZCH) follows the rows: TorchRec shards these
collections row_wise only, and rebuilds each table's ManagedCollisionModule for the rows of a rank
(ShardedManagedCollisionCollection of torchrec/distributed/mc_modules.py). Its buffers take the same memory on every
rank, whatever the plan. What an eviction sorts for a moment is not counted.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torchrec.modules.mc_modules import MCHManagedCollisionModule

from recsmith._types import noun
from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.field_policies import remaps_ids
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.problems.memory import batch_bytes
from recsmith.units import format_size
from recsmith.workloads import Table, Workload


@noun
class OptimizerMemory:
    """What an optimizer of torch.optim keeps, and what its step takes for a while, as multiples of parameters.

    states: kept for each parameter, in its type. On CPU the step goes through parameters one by one (_single_tensor_*
    of torch/optim, 2.13): temporaries of this parameter, and leftovers of the one before. On CUDA it takes all at once
    (_multi_tensor_*): together, copies of all parameters.
    """

    states: int
    temporaries: int
    leftovers: int
    together: int


DENSE_OPTIMIZERS = {
    "sgd": OptimizerMemory(states=0, temporaries=0, leftovers=0, together=0),
    "sgd_momentum": OptimizerMemory(states=1, temporaries=0, leftovers=0, together=0),
    "adagrad": OptimizerMemory(states=1, temporaries=1, leftovers=1, together=2),
    "rmsprop": OptimizerMemory(states=1, temporaries=1, leftovers=1, together=1),
    "adam": OptimizerMemory(states=2, temporaries=2, leftovers=1, together=1),
    "adamw": OptimizerMemory(states=2, temporaries=2, leftovers=1, together=1),
}
ASSUMED_OPTIMIZER = "adam"  # none of the table keeps more; where another trains, the estimate is too large


@noun
class DenseMemory:
    """Bytes of each rank beside its embedding shards.

    parameters: weights and buffers. gradients: DDP's buckets. state: of the dense optimizer. batch: ids of the local
    batches in flight, the embeddings that come back for one, and their gradients, as the all-to-all sorts them. extra:
    what an optimizer step, or backward for the largest gradient before it is in its bucket, takes beyond the others.
    """

    optimizer: str
    parameters: int
    gradients: int
    state: int
    batch: int
    extra: int

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return self.parameters + self.gradients + self.state + self.batch + self.extra

    def describe(self) -> str:
        """The parts, each with its size, as a sentence."""
        named = (
            (self.parameters, "dense parameters and buffers"),
            (self.gradients, "gradients"),
            (self.state, f"state of {self.optimizer}"),
            (self.batch, "the local batch and its embeddings"),
            (self.extra, "temporaries of a step"),
        )
        return ", ".join(f"{format_size(size)} for {what}" for size, what in named)


def check_dense_optimizer(name: str) -> None:
    """Refuse an optimizer whose memory is not known (UsageError)."""
    if name not in DENSE_OPTIMIZERS:
        raise UsageError(
            f"dense_optimizer is '{name}'{did_you_mean(name, list(DENSE_OPTIMIZERS))}; known: "
            f"{', '.join(DENSE_OPTIMIZERS)}; for another, name the one that keeps as much per weight, or state "
            "reserve_bytes="
        )


def dense_memory(
    model: nn.Module, found: Sequence[Collection], workload: Workload, *, optimizer: str, world_size: int, on_cpu: bool
) -> DenseMemory:
    """The estimate for a model, on any device (meta too), whose collections `found` are planned.

    Raises:
        UsageError: a lazy module has no shape yet.
    """
    modules = [each.outer if remaps_ids(each.outer) else each.module for each in found]
    planned = {id(tensor) for module in modules for tensor in (*module.parameters(), *module.buffers())}
    rest = [tensor for tensor in model.parameters() if id(tensor) not in planned]
    buffers = [tensor for tensor in model.buffers() if id(tensor) not in planned]
    _check_shapes(model)
    trained = [_bytes(tensor) for tensor in rest if tensor.requires_grad]
    kept = DENSE_OPTIMIZERS[optimizer]
    batch = batch_bytes(workload, world_size)
    in_backward = batch + max(trained, default=0)  # a gradient is computed, then copied into its bucket
    return DenseMemory(
        optimizer=optimizer, parameters=_sum(rest) + _sum(buffers), gradients=sum(trained),
        state=kept.states * sum(trained), batch=batch, extra=max(in_backward, _step(kept, trained, on_cpu)) - batch,
    )  # fmt: skip


def _check_shapes(model: nn.Module) -> None:
    lazy = [name for name, tensor in model.named_parameters() if isinstance(tensor, UninitializedParameter)]
    if lazy:
        raise UsageError(
            f"parameter '{lazy[0]}' has no shape yet, so the memory of the dense model cannot be estimated; run the "
            "model once before planning, or state reserve_bytes="
        )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _sum(tensors: Iterable[Tensor]) -> int:
    return sum(_bytes(tensor) for tensor in tensors)


def _step(optimizer: OptimizerMemory, sizes: Sequence[int], on_cpu: bool) -> int:
    """Bytes that the optimizer's step takes beside parameters, gradients and state, at most."""
    if not on_cpu:
        return optimizer.together * sum(sizes)
    return max(
        (optimizer.leftovers * last + optimizer.temporaries * now for last, now in pairwise((0, *sizes))), default=0
    )


ID_BYTES = 8  # raw ids and what evictions rank them by are int64
HISTORY_ROOM = 1.25  # of the ids between evictions: _init_history_buffers of torchrec/modules/mc_modules.py


def remapping_bytes(found: Sequence[Collection], workload: Workload, world_size: int) -> int:
    """Bytes on every device of what remaps the ids of managed-collision collections.

    Raises:
        UsageError: a collection that TorchRec cannot shard over so many ranks.
    """
    tables, names = {table.name: table for table in workload.tables}, table_names(found)
    return sum(
        _collision_bytes(module, tables[names[collection.path, name]], workload.batch_size, world_size)
        for collection in found
        if remaps_ids(collection.outer)
        for name, module in _collision_modules(collection, world_size).items()
    )


def _collision_modules(collection: Collection, world_size: int) -> dict[str, nn.Module]:
    """The ManagedCollisionModule of each table, checked."""
    outer: Any = collection.outer
    features = [feature for config in collection.configs.values() for feature in config.feature_names]
    twin = next((feature for feature in features if features.count(feature) > 1), None)
    if twin is not None:
        raise UsageError(
            f"feature '{twin}' of module '{collection.path}' reads two tables, which TorchRec does not shard with "
            "managed collisions; give each table a feature of its own"
        )
    modules = dict(outer._managed_collision_collection._managed_collision_modules)
    for name, module in modules.items():
        _check_buckets(name, module, collection.configs[name].num_embeddings, world_size)
    return modules


def _check_buckets(table: str, module: nn.Module, rows: int, world_size: int) -> None:
    """Refuse buckets that lie across the rows of two ranks: TorchRec cannot rebuild the module for a rank."""
    buckets: list[int] | None = getattr(module, "_output_segments", None)
    block = -(-rows // world_size)
    if buckets is not None and not {min(rank * block, rows) for rank in range(world_size + 1)} <= set(buckets):
        raise UsageError(
            f"table '{table}' has {len(buckets) - 1} buckets of ids over {rows} rows, and {world_size} ranks hold "
            f"{block} rows each; give total_num_buckets a multiple of the ranks that divides the rows"
        )


def _collision_bytes(module: nn.Module, table: Table, batch_size: int, world_size: int) -> int:
    """Bytes of one table's module on a rank: its share of what is kept by row, and all of the rest."""
    rows, block = table.num_embeddings, -(-table.num_embeddings // world_size)
    kept = 0
    for tensor in (*module.buffers(), *module.parameters()):
        by_row = tensor.ndim > 0 and tensor.shape[0] == rows
        kept += tensor.nbytes // rows * block if by_row else tensor.nbytes
    return kept + (_history_bytes(module, table, batch_size) if isinstance(module, MCHManagedCollisionModule) else 0)


def _history_bytes(module: MCHManagedCollisionModule, table: Table, batch_size: int) -> int:
    """Bytes of the ids that a rank remembers between evictions, and of what the policy ranks them by."""
    ids = sum((f.batch_size or batch_size) * f.pooling_factor * f.num_poolings for f in table.features)
    ranked = sum(in_history for _, _, in_history in module._eviction_policy.metadata_info)
    return ID_BYTES * (1 + ranked) * math.ceil(ids * module._eviction_interval * HISTORY_ROOM)
