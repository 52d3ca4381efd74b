"""The model of a plan, sharded by DistributedModelParallel or DMPCollection (2D parallelism), and each rank's weights.

Every function here runs on all ranks of a job (launch.py).
"""

import inspect
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.remote_device import _remote_device
from torch.distributed.tensor import DTensor
from torchrec.distributed import model_parallel
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import DMPCollectionConfig, ModuleSharder, ParameterSharding, ShardingPlan
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from recsmith._components import load
from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.index_dedup import deduplicating
from recsmith.adapters.topology import collection_arguments, device_type
from recsmith.clusters import Cluster
from recsmith.jobs.workload_model import WorkloadModel, with_model_collections
from recsmith.plans import Plan
from recsmith.workloads.optimizers import OPTIMIZERS


def replicated(
    model: nn.Module,
    sharding_plan: ShardingPlan,
    cluster: Cluster,
    *,
    device: torch.device,
    sharders: list[ModuleSharder[nn.Module]],
    data_parallel_wrapper: model_parallel.DataParallelWrapper | None = None,
    submodule_configs: Sequence[DMPCollectionConfig] = (),
) -> model_parallel.DMPCollection:
    """The model in the cluster's sharding groups, each sharded by the plan; TorchRec changes `sharding_plan` in place.

    gloo has no averaging all-reduce, so on CPU replicas sum and divide. submodule_configs: configurations of module
    types that have their own plans and groups.
    """
    assert dist.group.WORLD is not None
    return _collection_class()(
        module=model, device=device, plan=sharding_plan, sharders=sharders, global_pg=dist.group.WORLD,
        data_parallel_wrapper=data_parallel_wrapper, submodule_configs=list(submodule_configs),
        **collection_arguments(cluster),
    )  # fmt: skip


@cache
def _collection_class() -> type[model_parallel.DMPCollection]:
    """TorchRec's DMPCollection; without a GPU, a subclass whose constructor does not assert that there is one."""
    if torch.cuda.is_available():
        return model_parallel.DMPCollection

    class CpuDMPCollection(model_parallel.DMPCollection):
        """DMPCollection on CPU: shards are placed on `cpu`; TorchRec's remapped plan would number devices (cpu:1)."""

        def __init__(self, *args: Any, **keywords: Any) -> None:
            _constructor_without_assertions()(self, *args, **keywords)

        def _remap_sharding_plan(self, plan: ShardingPlan, *args: Any, **keywords: Any) -> None:
            super()._remap_sharding_plan(plan, *args, **keywords)
            for shard in _shards_of(plan):
                shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")

        def _allreduce_tensors(self, ctx: Any, tensors_dict: Any, annotation: str, opts: Any = None) -> None:
            del annotation, opts
            for tensor in (each for some in tensors_dict.values() for each in some):
                dist.all_reduce(tensor, group=ctx.replica_pg)
                tensor /= ctx.replica_pg.size()

    return CpuDMPCollection


@cache
def _constructor_without_assertions() -> FunctionType:
    """DMPCollection's constructor compiled without assertions, as `python -O` does."""
    path = str(model_parallel.__file__)
    whole = compile(inspect.getsource(model_parallel), path, "exec", dont_inherit=True, optimize=1)
    of_class = _code_in(whole, model_parallel.DMPCollection.__name__)
    made = _code_in(of_class, "__init__")
    plain = inspect.unwrap(model_parallel.DMPCollection.__init__)
    closure = (CellType(model_parallel.DMPCollection),)  # the class that `super()` refers to there
    return FunctionType(made, model_parallel.__dict__, "__init__", plain.__defaults__, closure)


def _code_in(code: CodeType, name: str) -> CodeType:
    return next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)


def _shards_of(plan: ShardingPlan) -> Iterator[Any]:
    for module in plan.plan.values():
        for parameter in cast(dict[str, ParameterSharding], module).values():
            yield from getattr(parameter.sharding_spec, "shards", ())


def optimizer_of(name: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """An optimizer's class and keyword arguments; its learning rate is arbitrary, but moves weights by 1e-3 or more."""
    found = OPTIMIZERS[name]
    return cast(Any, load(found.torch_class)), {"lr": 0.1, **({"eps": 1e-8} if "eps" in found.settings else {})}


def rank_device() -> torch.device:
    """The device of this rank: its GPU by LOCAL_RANK, or the CPU."""
    return (
        torch.device(device_type(), int(os.environ["LOCAL_RANK"])) if device_type() == "cuda" else torch.device("cpu")
    )


def sharded_model(plan: Plan, optimizer: str) -> tuple[DistributedModelParallel, torch.optim.Optimizer | None]:
    """The plan's model, sharded, and the dense optimizer of its data_parallel tables (None if there are none).

    optimizer: the optimizer of all tables, except sharded tables for which the plan names another one.
    """
    plan = with_model_collections(plan)
    own = {table.name: table.optimizer or optimizer for table in plan.workload.tables}
    model = WorkloadModel(plan.workload, torch.device("meta"))
    cls, keywords = optimizer_of(optimizer)
    copies = {placement.table for placement in plan.placements if placement.sharding_type == "data_parallel"}
    for name, parameter in model.named_parameters():
        if table_of(name) not in copies:
            of_table, words = optimizer_of(own[table_of(name)])
            apply_optimizer_in_backward(of_table, [parameter], words)
    sharders = deduplicating(get_default_sharders(), plan.workload)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sharding_plan = to_sharding_plan(plan, model, sharders=sharders)
        if plan.cluster.replication is not None:
            sharded = replicated(model, sharding_plan, plan.cluster, device=rank_device(), sharders=sharders)
        else:
            sharded = DistributedModelParallel(model, device=rank_device(), plan=sharding_plan, sharders=sharders)
    dense = [parameter for name, parameter in sharded.named_parameters() if table_of(name) in copies]
    return sharded, cls(dense, **keywords) if dense else None


def table_of(parameter: str) -> str:
    """The table name in a parameter's name: 't0' of 'collections.0.embedding_bags.t0.weight'."""
    return parameter.removesuffix(".weight").rpartition(".")[2]


class NamedShard(NamedTuple):
    """A part of a parameter on this rank. corner: its offsets in the whole. everywhere: all ranks hold the same."""

    parameter: str
    corner: tuple[int, ...]
    tensor: torch.Tensor
    everywhere: bool


def named_shards(model: nn.Module) -> Iterator[NamedShard]:
    """The parts of a model's parameters, sharded or whole, that this rank holds."""
    for name, value in model.state_dict().items():
        for corner, tensor, everywhere in held_of(value):
            yield NamedShard(name, corner, tensor, everywhere=everywhere)


def held_of(value: Any) -> Iterator[tuple[tuple[int, ...], torch.Tensor, bool]]:
    """This rank's parts of a tensor: (offsets in the whole, the part, whether all ranks hold the same part)."""
    if isinstance(value, ShardedTensor):
        for shard in value.local_shards():
            yield tuple(shard.metadata.shard_offsets), shard.tensor, False
    elif isinstance(value, DTensor):  # in 2D jobs
        local: Any = value.to_local()
        held = local.local_shards()  # a rank without shards still has an offset
        for corner, tensor in zip(local.local_offsets(), held, strict=bool(held)):
            yield tuple(corner), tensor, False
    else:
        yield (0,) * value.dim(), value, True


def local_shards(sharded: nn.Module) -> Iterator[tuple[str, tuple[int, int], torch.Tensor]]:
    """This rank's shards of tables: (table, (row, column) of the corner, weights); full copies are at (0, 0)."""
    for name, corner, tensor, _ in named_shards(sharded):
        row, column = (*corner, 0, 0)[:2]
        yield table_of(name), (row, column), tensor


def shard_of(whole: torch.Tensor, corner: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """The rectangle of a whole table that a shard holds."""
    return whole[corner[0] : corner[0] + shape[0], corner[1] : corner[1] + shape[1]]


def load_weights(sharded: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Write whole tables into this rank's shards."""
    with torch.no_grad():
        for table, corner, tensor in local_shards(sharded):
            tensor.copy_(shard_of(weights[table], corner, tensor.shape))
