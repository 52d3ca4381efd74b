"""Kernels of a row store's own inside TorchRec: which class looks rows up and updates them, for each fused group.

TorchRec chooses the kernel of a group of tables by the group's compute kernel, in one method of its lookups. Under
`own_kernels` that method asks a store first. A store that has kernels says so by a static method of its class:

    @staticmethod
    def kernel(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, **settings) -> Kernel | None

settings: of the store, as the run gives them. What it returns is made as TorchRec makes BatchedFusedEmbeddingBag
(pooled) or BatchedFusedEmbedding (rows of each id), whose subclass it usually is: `Class(config=, pg=, device=,
sharding_type=, env=)`, the last two of pooled ones alone. None leaves the group to TorchRec. The store itself finds its
kernels in the model it is made of (`kernels_in`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torchrec.distributed.embedding_lookup import GroupedEmbeddingsLookup, GroupedPooledEmbeddingsLookup
from torchrec.distributed.embedding_types import GroupedEmbeddingConfig

from recsmith._components import find, parsed
from recsmith.training.seams import ROWS

Choice = Callable[[GroupedEmbeddingConfig, bool, torch.device], Callable[..., nn.Module] | None]
_Kernel = TypeVar("_Kernel", bound=nn.Module)
_METHOD = "_create_embedding_kernel"


def kernels_of(wanted: object, **facts: Any) -> Choice:
    """What the row store of a run says of kernels; a store without kernels leaves all groups to TorchRec.

    wanted: the store's name or 'module:Class', with settings, as a run gives it. facts: what a store of ours is told of
    the job beside its settings.
    """
    name, settings = parsed(wanted, "rows")
    choose = getattr(find(ROWS, name), "kernel", None)
    return _none if choose is None else partial(choose, **settings, **facts)


def _none(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device) -> None:
    """TorchRec's own."""


def kernels_in(model: nn.Module, kind: type[_Kernel]) -> list[_Kernel]:
    """The kernels of a class in a sharded model, whose modules keep them in lists that torch does not look into."""
    lookups = [lookup for module in model.modules() for lookup in getattr(module, "_lookups", ())]
    return [each for lookup in lookups for each in lookup.modules() if isinstance(each, kind)]


@contextmanager
def own_kernels(choose: Choice) -> Iterator[None]:
    """Models that are sharded meanwhile get the kernels that `choose` returns; TorchRec is as it was afterwards."""
    pooled, rows = getattr(GroupedPooledEmbeddingsLookup, _METHOD), getattr(GroupedEmbeddingsLookup, _METHOD)

    def of_pooled(lookup: Any, config: Any, device: Any, pg: Any, sharding_type: Any, env: Any = None) -> nn.Module:
        made = choose(config, True, device or torch.device("cpu"))
        if made is None:
            return pooled(lookup, config, device, pg, sharding_type, env)
        return made(config=config, pg=pg, device=device, sharding_type=sharding_type, env=env)

    def of_rows(lookup: Any, config: Any, pg: Any, device: Any, env: Any = None) -> nn.Module:
        made = choose(config, False, device or torch.device("cpu"))
        if made is None:
            return rows(lookup, config, pg, device, env)
        return made(config=config, pg=pg, device=device)

    setattr(GroupedPooledEmbeddingsLookup, _METHOD, of_pooled)
    setattr(GroupedEmbeddingsLookup, _METHOD, of_rows)
    try:
        yield
    finally:
        setattr(GroupedPooledEmbeddingsLookup, _METHOD, pooled)
        setattr(GroupedEmbeddingsLookup, _METHOD, rows)


class UpdatedRows(torch.autograd.Function):
    """Distinct rows of a table as fp32, which are updated when their gradient comes."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tables: Any, table: int, distinct: torch.Tensor) -> Any:
        """What `tables.rows_read` gives."""
        del anchor  # a parameter, whose gradient autograd goes backward for
        ctx.of = (tables, table, distinct)
        return tables.rows_read(table, distinct)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Have `tables.update` take them."""
        tables, table, distinct = ctx.of
        tables.update(table, distinct, gradients[0])
        return None, None, None, None
