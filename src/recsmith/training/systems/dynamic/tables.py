"""Modules for tables of raw ids, which a model uses like TorchRec's embedding collections."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
)
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.training.systems.dynamic.maps import IdMaps
from recsmith.training.systems.dynamic.settings import DynamicRule
from recsmith.training.tables.features import Features
from recsmith.training.tables.protocol import TableModule

AHEAD = "raw ids get their rows when their batch trains"


class DynamicModule(TableModule):
    """The common part of pooled and sequence tables with raw ids. tables: TorchRec's collection that holds rows."""

    tables: Any
    maps: IdMaps
    collected: tuple[BaseEmbeddingConfig, ...]

    def features(self) -> Features:
        """The features of all tables, and which of them have raw ids."""
        names = tuple(name for config in self.collected for name in config.feature_names)
        return Features(names, raw=self.maps.features)

    def stored(self) -> list[BaseEmbeddingConfig]:
        """TorchRec's configs of all tables."""
        return list(self.collected)

    def why_not_ahead(self) -> str | None:
        """The reason: rows are given to other ids between batches."""
        return AHEAD


class DynamicBags(nn.Module, DynamicModule):
    """Pooled tables, some of which have raw ids. dynamic: rules by table with raw ids."""

    settings_noun = None  # model.dynamic asks for it

    def __init__(
        self, configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool = False,
        *, dynamic: Mapping[str, DynamicRule],
    ) -> None:  # fmt: skip
        super().__init__()
        self.collected, self.maps = tuple(configs), IdMaps(configs, dynamic)
        self.tables: Any = EmbeddingBagCollection(device=device, tables=list(configs), is_weighted=is_weighted)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """TorchRec's configs of all tables."""
        return list(self.collected)  # type: ignore[arg-type]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Pooled vectors of each feature."""
        return self.tables(self.maps.rows(features, self.tables))

    def vectors(self, name: str) -> torch.Tensor | None:
        """The weights of a table's rows, of which row 0 is for unknown ids; None if this module has no such table."""
        bags: Any = self.tables.embedding_bags
        return bags[name].weight.detach() if name in bags else None


class DynamicSequences(nn.Module, DynamicModule):
    """Tables that are not pooled, some of which have raw ids. dynamic: rules by table with raw ids."""

    def __init__(
        self, configs: Sequence[EmbeddingConfig], device: torch.device, *, dynamic: Mapping[str, DynamicRule]
    ) -> None:
        super().__init__()
        self.collected, self.maps = tuple(configs), IdMaps(configs, dynamic)
        self.tables: Any = EmbeddingCollection(device=device, tables=list(configs))

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """TorchRec's configs of all tables."""
        return list(self.collected)  # type: ignore[arg-type]

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """The row of each id of each feature."""
        return self.tables(self.maps.rows(features, self.tables))

    def vectors(self, name: str) -> torch.Tensor | None:
        """The weights of a table's rows, of which row 0 is for unknown ids; None if this module has no such table."""
        rows: Any = self.tables.embeddings
        return rows[name].weight.detach() if name in rows else None


def maps_in(model: nn.Module) -> list[IdMaps]:
    """The maps of a model, sharded or not, in the order of its modules."""
    return [module.maps for module in model.modules() if isinstance(module, DynamicBags | DynamicSequences)]
