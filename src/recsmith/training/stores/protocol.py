"""The interface of a row store: it holds the shards of a rank, and lets them be walked, prefetched and saved.

A store of yours is made from the sharded model and its optimizer, `Class(model, optimizer, **settings)`, and named in a
run as `rows: module:Class`. examples/own_rows.py is one. Every rank has its own store.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from recsmith.jobs.sharded_model import NamedShard


class WholeTensor(NamedTuple):
    """Data type and shape of a parameter as one tensor over all ranks."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class RowStore(Protocol):
    """The rows of a job's tables, and its other parameters, from the view of one rank."""

    def shards(self) -> Iterator[NamedShard]:
        """This rank's shard of every parameter; callers may write into tensors, and `flush` keeps what they wrote."""
        ...

    def whole(self) -> dict[str, WholeTensor]:
        """Data type and shape of every parameter by name, as one tensor over all ranks."""
        ...

    def prefetch(self, batch: Any) -> None:
        """Bring the rows of a TrainingBatch to where training reads them; called before each pass over a batch."""
        ...

    def flush(self) -> None:
        """Bring rows that are changed or in flight to where `shards` and `state_dict` find them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint: `model` and `optimizer`, as torch.distributed.checkpoint writes them."""
        ...

    def state_to_load(self) -> dict[str, Any]:
        """The same content, for torch.distributed.checkpoint to load into; in a job that has not trained a step yet."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was loaded into `state_to_load`."""
        ...


# --- parts of a model that the ranks of one host have, and those of other hosts do not --------------------------


def towers_in(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """(path, module) of each part of a model that only the ranks of one host have."""
    for path, module in model.named_modules():
        if hasattr(module, "of_this_host"):
            yield path, module


def host_parameters(model: nn.Module) -> set[str]:
    """Names of the parameters that only the ranks of this host have."""
    return {f"{path}.{name}" if path else name for path, tables in towers_in(model) for name in tables.of_this_host()}


class HostParts:
    """Parts of a placed model that only the ranks of this host have; in this base class, none.

    local: names of the parameters that only this host has.
    """

    local: tuple[str, ...] = ()

    def sharders(self, usual: Sequence[Any]) -> list[Any]:
        """The sharders of the model. usual: sharders of a model whose tables are on all hosts."""
        return list(usual)

    def average(self, model: nn.Module) -> dict[nn.Parameter, list[Any]]:
        """Sum gradients of local parameters over the host as they arrive; returns each parameter's groups across hosts.

        model: the sharded model, without its wrappers.
        """
        return {}
