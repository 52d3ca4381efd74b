"""The interface of a named model: a module that is made from its tables and returns a logit for each label of a sample.

    NamedModel(settings, sequences, tables, dense, labels)     # of a noun of settings.py or pooled_settings.py
    model(dense_features, sparse_features) -> logits (B, L)

`sequences` is the torchrec.EmbeddingCollection of the tables that are not pooled, `tables` the collection of the pooled
tables, each None if there are none. Only the model's own forward pass may call them: TorchRec's pipelines trace it
symbolically, so everything that reads numbers, such as lengths of histories, is in a submodule (`body`).

B samples, L labels
"""

from typing import Any, Protocol

import torch


class NamedModel(Protocol):
    """A model of histories, or of pooled tables only."""

    def __init__(self, settings: Any, sequences: Any, tables: Any, dense: int, labels: int) -> None: ...

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        ...
