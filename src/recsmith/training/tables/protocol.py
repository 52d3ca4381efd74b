"""What the tables of a model offer to everything else: their inputs, storage, initial weights and exported names.

A table module is an nn.Module that takes the place of a TorchRec collection in a model, `Class(configs, device,
is_weighted, **settings)`. For the model it is a collection: it has `embedding_bag_configs()` of the logical tables and
returns their pooled vectors. Everything else sees the collections inside. plain.py does the same for TorchRec's own
collections.
"""

import re
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.training.tables.features import Features

_TABLE = re.compile(r"(?:^|\.)(?:embedding_bags|embeddings)\.([^.]+)\.weight$")


def table_of(parameter: str) -> str | None:
    """The table of a parameter's name, such as 'model.embedding_bags.t0.weight'; None if it belongs to no table."""
    found = _TABLE.search(parameter)
    return found and found[1]


class InitialWeights(NamedTuple):
    """The distribution of a stored table's initial weights: uniform within `reach` of `center`."""

    rows: int
    columns: int
    center: float
    reach: float


@runtime_checkable
class TableModule(Protocol):
    """Embedding tables of a model.

    A module that reads the output of its inner collections only by feature name sets `reads_by_name = True`. Others get
    features in the order of their configs, which costs a copy if the plan has another order.
    """

    def features(self) -> Features:
        """What batches must hold for the tables: by default, ids of all features that stored tables look up.

        A feature of several tables is in batches once.
        """
        return Features(tuple(dict.fromkeys(name for config in self.stored() for name in config.feature_names)))

    def stored(self) -> list[BaseEmbeddingConfig]:
        """TorchRec's configs of the stored tables, before they are sharded."""
        ...

    def initial(self) -> dict[str, InitialWeights]:
        """The distribution of initial weights of each stored table: by default, as in torchrec's models."""
        return {config.name: torchrec_initial(config) for config in self.stored()}

    def vectors(self, name: str) -> torch.Tensor | None:
        """The vectors of all ids of a logical table (rows, columns), not sharded; None if it has no such table."""
        ...

    def names(self) -> list[str]:
        """Names of the logical tables: by default, those of the stored tables."""
        return [config.name for config in self.stored()]

    def exported(self, parameter: str) -> str:
        """The name under which a parameter of the model is exported: its name in a model without this module."""
        return parameter

    def why_not_ahead(self) -> str | None:
        """Why ids of the next batch cannot be sent between ranks while this one trains; None if they can."""
        return None


def torchrec_initial(config: BaseEmbeddingConfig) -> InitialWeights:
    """Uniform within 1 / sqrt(rows) of zero, unless the config gives bounds."""
    if config.weight_init_min is not None and config.weight_init_max is not None:
        low, high = config.weight_init_min, config.weight_init_max
        return InitialWeights(config.num_embeddings, config.embedding_dim, (low + high) / 2, (high - low) / 2)
    return InitialWeights(config.num_embeddings, config.embedding_dim, 0.0, config.num_embeddings**-0.5)
