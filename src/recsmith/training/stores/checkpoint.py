"""Rows of a checkpoint on disk, read in one process, without a job."""

import io
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from recsmith.adapters.checkpoints import read_checkpoint
from recsmith.adapters.chunk_bytes import RowReader
from recsmith.errors import CorruptFile, UsageError
from recsmith.jobs.sharded_model import NamedShard
from recsmith.training.stores.protocol import RowStore, WholeTensor


class CheckpointRows(RowStore):
    """The whole tensors of a checkpoint: weights as `model.*`, state as `optimizer.*`. folder: of its tensor files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def shards(self) -> Iterator[NamedShard]:
        """All tensors; they are read when the first one is asked for."""
        for name, tensor in self.state_dict().items():
            yield NamedShard(name, (0,) * tensor.dim(), tensor, everywhere=True)

    def whole(self) -> dict[str, WholeTensor]:
        """Data types and shapes from the metadata, which are read without executing what they name; no tensor is read.

        Raises:
            CorruptFile: metadata or files are damaged, or the metadata name something that PyTorch does not write.
        """
        return self._whole

    @cached_property
    def _whole(self) -> dict[str, WholeTensor]:
        entries = read_checkpoint(self.folder).entries.items()
        return {name: WholeTensor(getattr(torch, each.dtype), each.sizes) for name, each in entries if each.dtype}

    def prefetch(self, batch: Any) -> None:
        """Nothing: a checkpoint is not trained."""

    def flush(self) -> None:
        """Nothing: a checkpoint never changes."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All tensors by name, in host memory."""
        state = {name: torch.empty(each.shape, dtype=each.dtype) for name, each in self._whole.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns that no job is running
            try:
                load(state, storage_reader=RowReader(self.folder), planner=PlainObjects(), no_dist=True)
            except (CheckpointException, RuntimeError, OSError, ValueError, EOFError) as error:
                raise CorruptFile(f"checkpoint '{self.folder}' is damaged: {first_cause(error)}") from None
        return state

    def state_to_load(self) -> dict[str, Any]:
        """Refused, like `load_state_dict`: a checkpoint cannot be changed."""
        raise UsageError(f"checkpoint '{self.folder}' is only read; write another one (write_checkpoint)")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refused."""
        self.state_to_load()


class PlainObjects(DefaultLoadPlanner):
    """Loads non-tensor objects only if they are plain data; PyTorch's own planner executes whatever they name."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Load an object of tensors, numbers, text and containers of them; refuse anything else."""
        try:
            torch.load(value, weights_only=True)
        except Exception:  # a hostile or damaged pickle raises whatever its operations raise
            raise ValueError(f"'{read_item.dest_index.fqn}' is no plain data, and is not loaded") from None
        value.seek(0)
        super().load_bytes(read_item, value)


def first_cause(error: BaseException) -> str:
    """The cause of a failure of torch.distributed.checkpoint in one line, from the lowest rank that failed."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (cause, _) = min(error.failures.items())
        return f"{type(cause).__name__} on rank {rank}: {cause}".splitlines()[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def write_checkpoint(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Write tensors as the state of a checkpoint, in one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that no job is running
        save(state, checkpoint_id=folder, no_dist=True)
