"""What a store of rows is: who holds the shards of a rank, and lets them be walked, fetched and saved.

A store of yours is made of the sharded model and its optimizer, `Class(model, optimizer, **settings)`, and named in a
run as `rows: module:Class`. examples/own_rows.py is one. Every rank has its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from recsmith.jobs.sharded_model import NamedShard


class WholeTensor(NamedTuple):
    """What a parameter is as one tensor, over all ranks."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class RowStore(Protocol):
    """The rows of a job's tables, and its other parameters, as a rank sees them."""

    def shards(self) -> Iterator[NamedShard]:
        """What this rank holds of every parameter; tensors may be written into, and `flush` keeps what was written."""
        ...

    def whole(self) -> dict[str, WholeTensor]:
        """Every parameter by its name, as one tensor over all ranks."""
        ...

    def prefetch(self, batch: Any) -> None:
        """Have the rows of a TrainingBatch where training finds them; called before each pass over a batch."""
        ...

    def flush(self) -> None:
        """Bring rows that were changed or are under way to where `shards` and `state_dict` find them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: `model` and `optimizer`, as torch.distributed.checkpoint writes them."""
        ...

    def state_to_load(self) -> dict[str, Any]:
        """The same, for torch.distributed.checkpoint to load into; of a job that has not trained a step yet."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what was loaded into `state_to_load`."""
        ...


# --- parts of a model that the ranks of one host have, and those of other hosts do not --------------------------


def towers_in(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Such parts of a model, and their place in it."""
    for path, module in model.named_modules():
        if hasattr(module, "of_this_host"):
            yield path, module


def host_parameters(model: nn.Module) -> set[str]:
    """The names of parameters of a model that the ranks of this host alone have."""
    return {f"{path}.{name}" if path else name for path, tables in towers_in(model) for name in tables.of_this_host()}


class HostParts:
    """What this rank's host has that others do not, once a model is placed; here nothing.

    local: names of parameters that this host alone has.
    """

    local: tuple[str, ...] = ()

    def sharders(self, usual: Sequence[Any]) -> list[Any]:
        """The sharders of the model. usual: of one whose tables lie on all hosts."""
        return list(usual)

    def average(self, model: nn.Module) -> dict[nn.Parameter, list[Any]]:
        """Sum gradients of local parameters over the host, as they come; by parameter, the groups of all others.

        model: the sharded one, without what is wrapped around it.
        """
        return {}
