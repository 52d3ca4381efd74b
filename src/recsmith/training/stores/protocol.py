"""What a store of rows is: who holds the shards of a rank, and lets them be walked, fetched and saved.

A store of yours is made of the sharded model and its optimizer, `Class(model, optimizer, **settings)`, and named in a
run as `rows: module:Class`. examples/own_rows.py is one. Every rank has its own.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch

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
