"""A row store's own kernels inside TorchRec: which class looks up and updates the rows of each fused group of tables.

TorchRec chooses the kernel of a group of tables by the group's compute kernel, in one method of its lookups. Within
`own_kernels` that method asks a store first. A store with kernels has a static method:

    @staticmethod
    def kernel(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, **settings) -> Kernel | None

settings: the store's settings, as the run gives them. The returned class is called as TorchRec calls
BatchedFusedEmbeddingBag (pooled) or BatchedFusedEmbedding (the row of each id), whose subclass it usually is:
`Class(config=, pg=, device=, sharding_type=, env=)`, the last two only if pooled. None leaves the group to TorchRec.
The store itself finds its kernels in the model that it is made from (`kernels_in`).
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
    """The kernel choice of a run's row store; a store without kernels leaves all groups to TorchRec.

    wanted: the store's name or 'module:Class', with settings, as a run gives it. facts: facts about the job that the
    store receives in addition to its settings.
    """
    name, settings = parsed(wanted, "rows")
    choose = getattr(find(ROWS, name), "kernel", None)
    return _none if choose is None else partial(choose, **settings, **facts)


def _none(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device) -> None:
    """None: TorchRec's own kernel."""


def kernels_in(model: nn.Module, kind: type[_Kernel]) -> list[_Kernel]:
    """The kernels of a class in a sharded model, whose modules keep them in lists that torch does not traverse."""
    lookups = [lookup for module in model.modules() for lookup in getattr(module, "_lookups", ())]
    return [each for lookup in lookups for each in lookup.modules() if isinstance(each, kind)]


@contextmanager
def own_kernels(choose: Choice) -> Iterator[None]:
    """Within this context, models that are sharded get the kernels that `choose` returns; it then restores TorchRec."""
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
    """Distinct rows of a table in fp32, which are updated when their gradient arrives."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tables: Any, table: int, distinct: torch.Tensor) -> Any:
        """The rows that `tables.rows_read` returns."""
        del anchor  # a parameter, so that autograd runs the backward pass
        ctx.of = (tables, table, distinct)
        return tables.rows_read(table, distinct)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Pass the gradients to `tables.update`."""
        tables, table, distinct = ctx.of
        tables.update(table, distinct, gradients[0])
        return None, None, None, None
