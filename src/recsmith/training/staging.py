"""A copy of a job's state in host memory, for a checkpoint that is written while training goes on.

The stager of PyTorch 2.13 cannot copy ShardedTensors (it asks them for a data pointer), so this one does.
"""

from typing import Any

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard


class Copies:
    """What `async_save` takes as its stager: it waits for the copy, and nothing has to be waited for after it."""

    should_synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The same state, its tensors copied to host memory."""
        return copied(state_dict)

    def synchronize_staging(self) -> None:
        """The copy is complete when `stage` returns."""

    def close(self) -> None:
        """There is nothing to give back."""


def copied(value: Any) -> Any:
    """A nested state with copies of its tensors in host memory; other values as they are."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, ShardedTensor):
        shards = [Shard(_copy(shard.tensor), shard.metadata) for shard in value.local_shards()]
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            shards,
            sharded_tensor_metadata=value.metadata(),
            process_group=value._process_group,
        )
    return _copy(value) if isinstance(value, torch.Tensor) else value


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
