"""What a model is that runs name: a module that is made of its tables and says a logit for each label of a sample.

    NamedModel(settings, sequences, tables, dense, labels)     # of a noun of settings.py or pooled_settings.py
    model(dense_features, sparse_features) -> logits (B, L)

`sequences` is the torchrec.EmbeddingCollection of the tables whose rows are not pooled, `tables` the pooled ones, each
None where there are none. Only the forward pass of the model itself meets them: TorchRec's pipelines follow it
symbolically, so all that looks at numbers, such as lengths of histories, is in a module below it (`body`).

B samples, L labels
"""

from typing import Any, Protocol

import torch


class NamedModel(Protocol):
    """A model of histories, or of pooled tables alone."""

    def __init__(self, settings: Any, sequences: Any, tables: Any, dense: int, labels: int) -> None: ...

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        ...
