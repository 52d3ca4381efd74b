"""What the tables of a model are to everything else: what they are fed, stored in, start with and are exported as.

A table module is an nn.Module that a model is given in place of a TorchRec collection, `Class(configs, device,
is_weighted, **settings)`. To the model it is one: it has `embedding_bag_configs()` of the logical tables and returns
their pooled vectors. All else sees the collections inside. plain.py says the same of TorchRec's own collections.
"""

import re
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.training.tables.features import Features

_TABLE = re.compile(r"(?:^|\.)(?:embedding_bags|embeddings)\.([^.]+)\.weight$")


def table_of(parameter: str) -> str | None:
    """The table of a parameter's name, such as 'model.embedding_bags.t0.weight'; None where it is of none."""
    found = _TABLE.search(parameter)
    return found and found[1]


class InitialWeights(NamedTuple):
    """How the weights of a stored table start: drawn uniformly within `reach` of `center`."""

    rows: int
    columns: int
    center: float
    reach: float


@runtime_checkable
class TableModule(Protocol):
    """Embedding tables of a model.

    One that asks the collections inside for features by their names alone says `reads_by_name = True`. Others are given
    them in the order of their configs, which costs a copy where the plan has another order.
    """

    def features(self) -> Features:
        """What batches must hold for them: ids of all that stored tables look up, where nothing else is said.

        A feature of several tables stands in batches once.
        """
        return Features(tuple(dict.fromkeys(name for config in self.stored() for name in config.feature_names)))

    def stored(self) -> list[BaseEmbeddingConfig]:
        """TorchRec's configs of the tables that are stored, before they are sharded."""
        ...

    def initial(self) -> dict[str, InitialWeights]:
        """How the weights of each stored table start: as torchrec's models have it, where nothing else is said."""
        return {config.name: torchrec_initial(config) for config in self.stored()}

    def vectors(self, name: str) -> torch.Tensor | None:
        """The vectors of all ids of a logical table (rows, columns), not sharded; None where it has no such table."""
        ...

    def names(self) -> list[str]:
        """Names of the logical tables: those of the stored ones, where nothing else is said."""
        return [config.name for config in self.stored()]

    def exported(self, parameter: str) -> str:
        """The name under which a parameter of the model is exported: that of the model without this module's doing."""
        return parameter

    def why_not_ahead(self) -> str | None:
        """Why ids of the next batch cannot cross ranks while this one trains; None where they can."""
        return None


def torchrec_initial(config: BaseEmbeddingConfig) -> InitialWeights:
    """Within 1 / sqrt(rows) of zero, or where the config says."""
    if config.weight_init_min is not None and config.weight_init_max is not None:
        low, high = config.weight_init_min, config.weight_init_max
        return InitialWeights(config.num_embeddings, config.embedding_dim, (low + high) / 2, (high - low) / 2)
    return InitialWeights(config.num_embeddings, config.embedding_dim, 0.0, config.num_embeddings**-0.5)
