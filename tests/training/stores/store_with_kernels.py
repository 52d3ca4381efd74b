"""A row store with kernels of its own, which a job of the tests names."""

from pathlib import Path
from typing import Any

import torch
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding, BatchedFusedEmbeddingBag

from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import kernels_in


class OwnBag(BatchedFusedEmbeddingBag):
    """TorchRec's, of pooled tables."""


class OwnEmbedding(BatchedFusedEmbedding):
    """TorchRec's, of rows of each id."""


class StoreWithKernels(DeviceRows):
    """Writes the tables of its kernels to a file."""

    def __init__(self, model: Any, optimizer: Any = None, *, report: str) -> None:
        super().__init__(model, optimizer)
        mine = [*kernels_in(model, OwnBag), *kernels_in(model, OwnEmbedding)]
        found = [f"{type(module).__name__} {table.name}" for module in mine for table in module.config.embedding_tables]
        Path(report).write_text("\n".join(found))

    @staticmethod
    def kernel(config: Any, pooled: bool, device: torch.device, **settings: Any) -> type | None:
        """Its own for all groups but those with a table 'left'."""
        if any(table.name == "left" for table in config.embedding_tables):
            return None
        return OwnBag if pooled else OwnEmbedding
