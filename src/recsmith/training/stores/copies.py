"""A copy of a job's state in host memory, from which a checkpoint is written while training goes on."""

from dataclasses import replace
from typing import Any

import torch
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard


class Copies:
    """A stager for `async_save` that copies the job's state to host memory at once, so that nothing waits for it later.

    PyTorch 2.13's own stager cannot copy ShardedTensors (it asks them for a data pointer).
    """

    should_synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The same state, with its tensors copied to host memory."""
        return copied(state_dict)

    def synchronize_staging(self) -> None:
        """The copy is complete when `stage` returns."""

    def close(self) -> None:
        """Nothing to release."""


def state_bytes(value: Any) -> int:
    """Bytes of the tensors in a nested state, over all ranks."""
    if isinstance(value, dict):
        return sum(state_bytes(inner) for inner in value.values())
    if isinstance(value, ShardedTensor | torch.Tensor):
        return value.size().numel() * value.dtype.itemsize
    return 0


def copied(value: Any) -> Any:
    """A nested state with its tensors copied to host memory; other values are not copied."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, ShardedTensor):
        whole = value.metadata()
        shards = [Shard(_copy(shard.tensor), _in_host_memory(shard.metadata)) for shard in value.local_shards()]
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            shards,
            sharded_tensor_metadata=replace(whole, shards_metadata=list(map(_in_host_memory, whole.shards_metadata))),
            process_group=value._process_group,
        )
    return _copy(value) if isinstance(value, torch.Tensor) else value


def _in_host_memory(shard: ShardMetadata) -> ShardMetadata:
    placement: Any = shard.placement
    return ShardMetadata(shard.shard_offsets, shard.shard_sizes, f"rank:{placement.rank()}/cpu")


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
