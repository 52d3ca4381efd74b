"""A plan for one sharding group, trained by TorchRec's DMPCollection: 2D parallelism, on GPUs and on CPU.

Every function here runs on all ranks of a job (launch.py).
"""

import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.remote_device import _remote_device
from torchrec.distributed import model_parallel
from torchrec.distributed.types import ModuleSharder, ParameterSharding, ShardingPlan

from recsmith.adapters.two_dimensional import collection_arguments
from recsmith.clusters import Cluster


def replicated(
    model: nn.Module,
    sharding_plan: ShardingPlan,
    cluster: Cluster,
    *,
    device: torch.device,
    sharders: list[ModuleSharder[nn.Module]],
) -> model_parallel.DMPCollection:
    """The model in as many sharding groups as the cluster says, each sharded by the plan, which TorchRec changes.

    gloo averages nothing, so its replicas sum and divide instead.
    """
    assert dist.group.WORLD is not None
    made = _collection_class()(
        module=model, device=device, plan=sharding_plan, sharders=sharders, global_pg=dist.group.WORLD,
        **collection_arguments(cluster),
    )  # fmt: skip
    if device.type == "cpu":
        made.set_all_reduce_hook(_Mean(made.device_mesh.get_group("replicate")))
    return made


class _Mean:
    """Averages tensors over a group in place, one by one."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def __call__(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            dist.all_reduce(tensor, group=self._group)
            tensor /= self._group.size()


class _WithoutAssertions(SourceFileLoader):
    """Loads a module as `python -O` would, which compiles assertions away."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True, optimize=1)


@cache
def _collection_class() -> Any:
    """TorchRec's DMPCollection; where there is no GPU, from its source without the assertion that asks for one."""
    if torch.cuda.is_available():
        return model_parallel.DMPCollection
    name = "recsmith_cpu_model_parallel"
    path = str(model_parallel.__file__)
    spec = importlib.util.spec_from_file_location(name, path, loader=_WithoutAssertions(name, path))
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)

    class CpuDMPCollection(module.DMPCollection):
        """Shards lie on `cpu`, where TorchRec's remapped plan numbers devices: cpu:1."""

        def _remap_sharding_plan(self, plan: ShardingPlan, *args: Any, **keywords: Any) -> None:
            super()._remap_sharding_plan(plan, *args, **keywords)
            for shard in _shards_of(plan):
                shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")

    return CpuDMPCollection


def _shards_of(plan: ShardingPlan) -> Iterator[Any]:
    for module in plan.plan.values():
        for parameter in cast(dict[str, ParameterSharding], module).values():
            yield from getattr(parameter.sharding_spec, "shards", ())
