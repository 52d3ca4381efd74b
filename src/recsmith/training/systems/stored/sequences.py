"""Compressed tables that are not pooled, which a model sees as one collection of logical tables.

n ids of a feature in all samples, D columns of a logical table
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingCollection, EmbeddingConfig, JaggedTensor, KeyedJaggedTensor

from recsmith.embeddings import EmbeddingTransform, physical
from recsmith.embeddings.combining import Same
from recsmith.training.systems.stored.tables import StoredModule, StoredTable


class StoredSequences(nn.Module, StoredModule):
    """Tables of which some are compressed. transforms: how, by table name.

    TorchRec requires all tables of a collection to have one width, so there is one collection for each width.
    """

    def __init__(
        self, configs: Sequence[EmbeddingConfig], device: torch.device, *, transforms: Mapping[str, EmbeddingTransform]
    ) -> None:
        super().__init__()
        self.logical = tuple(StoredTable(config, transforms.get(config.name)) for config in configs)
        self.combine = CombinedRows(self.logical)
        stored: Any = self.stored()
        widths = sorted({config.embedding_dim for config in stored})
        self.collections = nn.ModuleList(
            EmbeddingCollection(tables=[each for each in stored if each.embedding_dim == width], device=device)
            for width in widths
        )

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """TorchRec's configs of the logical tables."""
        return [table.config for table in self.logical]  # type: ignore[misc]

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Look up the rows (n, D) of each logical feature. features: the physical features."""
        return self.combine([each(features) for each in self.collections], features)

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights of each physical table, by name."""
        return {name: each.weight for part in self.collections for name, each in part.embeddings.items()}  # type: ignore[union-attr, operator]


class CombinedRows(nn.ModuleList):
    """Combines the rows of each compressed table.

    It holds no tables, so TorchRec's pipelines run it as a whole.
    """

    def __init__(self, tables: Sequence[StoredTable]) -> None:
        super().__init__(Same() if table.transform is None else table.transform.combination() for table in tables)
        self.stored = tuple(tables)

    def forward(
        self, found: Sequence[Mapping[str, JaggedTensor]], features: KeyedJaggedTensor
    ) -> dict[str, JaggedTensor]:
        """Combine rows of physical features into those of logical features (n, D)."""
        rows = {name: each for part in found for name, each in part.items()}
        carried = {name for table in self.stored for name in _carried(table)}
        numbers = features.to_dict() if carried else {}
        return {
            feature: _rows(table.transform, combine, feature, rows, numbers)
            for table, combine in zip(self.stored, self, strict=True)
            for feature in table.config.feature_names
        }


def _carried(table: StoredTable) -> list[str]:
    parts = () if table.transform is None else table.transform.carried
    return [physical(feature, part) for feature in table.config.feature_names for part in parts]


def _rows(
    transform: EmbeddingTransform | None, combine: nn.Module, feature: str, rows: Mapping[str, JaggedTensor],
    numbers: Mapping[str, JaggedTensor],
) -> JaggedTensor:  # fmt: skip
    """The rows of one logical feature."""
    if transform is None:
        return rows[feature]
    parts = [rows[physical(feature, lookup.name)] for lookup in transform.lookups]
    if not transform.carried:
        return JaggedTensor(combine([each.values() for each in parts]), lengths=parts[0].lengths())
    where = numbers[physical(feature, transform.carried[0])]
    vectors = [_spread(each.values(), where.values() >> number & 1) for number, each in enumerate(parts)]
    return JaggedTensor(combine(vectors), lengths=where.lengths())


def _spread(rows: torch.Tensor, has: torch.Tensor) -> torch.Tensor:
    """Place a lookup's rows at the ids that have one (n, columns), with zeros at all other ids."""
    return rows.new_zeros(len(has), rows.shape[1]).index_copy(0, has.nonzero()[:, 0], rows)
