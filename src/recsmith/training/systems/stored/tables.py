"""Compressed tables, which a model sees as one collection of logical tables.

B samples, D columns of a logical table
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingConfig, KeyedJaggedTensor, KeyedTensor
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, PoolingType

from recsmith.data import JaggedIds
from recsmith.embeddings import EmbeddingTransform, PhysicalTable, physical
from recsmith.embeddings.combining import Same
from recsmith.training.tables.features import Features
from recsmith.training.tables.protocol import InitialWeights, TableModule, torchrec_initial

CHUNK = 65_536  # ids whose vectors are combined at once: some megabytes at any width


@dataclass(frozen=True)
class StoredTable:
    """A logical table as a model sees it, and the transform by which it is stored; None: uncompressed."""

    config: EmbeddingBagConfig | EmbeddingConfig
    transform: EmbeddingTransform | None = None

    def logical_config(self) -> EmbeddingBagConfig | EmbeddingConfig:
        """TorchRec's config as the model sees it, with the names of the features that it sees."""
        outputs = () if self.transform is None else self.transform.outputs
        if not outputs:
            return self.config
        names = [physical(name, output) for name in self.config.feature_names for output in outputs]
        return replace(self.config, feature_names=names)

    @property
    def parts(self) -> tuple[PhysicalTable | None, ...]:
        """The physical tables of the transform; (None,) for an uncompressed table."""
        return (None,) if self.transform is None else self.transform.parts

    def physical_configs(self) -> list[Any]:
        """TorchRec's configs of the physical tables.

        Pooled ones are summed; if the logical table pools by means, these are taken after combining.
        """
        if self.transform is None:
            return [self.config]
        lookups, pooled = self.transform.lookups, isinstance(self.config, EmbeddingBagConfig)
        made: Any = partial(EmbeddingBagConfig, pooling=PoolingType.SUM) if pooled else EmbeddingConfig
        return [
            made(
                name=physical(self.config.name, part.name),
                num_embeddings=part.num_embeddings,
                embedding_dim=part.embedding_dim,
                feature_names=[
                    physical(feature, lookup.name)
                    for feature in self.config.feature_names
                    for lookup in lookups
                    if lookup.part == number
                ],
                data_type=self.config.data_type,
            )
            for number, part in enumerate(self.transform.parts)
        ]


class StoredModule(TableModule):
    """What compressed tables have in common, pooled or not."""

    logical: tuple[StoredTable, ...]
    combine: Any

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights of each physical table, by name, not sharded."""
        raise NotImplementedError

    def features(self) -> Features:
        """The physical features, and how ids of the data are mapped to them."""
        transforms = {
            feature: table.transform
            for table in self.logical
            if table.transform is not None
            for feature in table.config.feature_names
        }
        names = [name for config in self.stored() for name in config.feature_names]
        carried = [physical(name, each) for name, transform in transforms.items() for each in transform.carried]
        return Features((*names, *carried), transforms)

    def stored(self) -> list[BaseEmbeddingConfig]:
        """The configs of the physical tables."""
        return [config for table in self.logical for config in table.physical_configs()]

    def initial(self) -> dict[str, InitialWeights]:
        """Initial weights of the physical tables, as the parts of transforms define them."""
        return {
            config.name: _initial(config, part)
            for table in self.logical
            for config, part in zip(table.physical_configs(), table.parts, strict=True)
        }

    def names(self) -> list[str]:
        """Names of the logical tables."""
        return [table.config.name for table in self.logical]

    def vectors(self, name: str) -> torch.Tensor | None:
        """The vectors of all ids of a logical table, combined from its physical tables; None if it is not here."""
        if name not in self.names():
            return None
        number = self.names().index(name)
        transform, combine, found = self.logical[number].transform, self.combine[number], self.weights()
        if transform is None:
            return found[name].detach()
        weights = [found[physical(name, part.name)].detach() for part in transform.parts]
        made: list[torch.Tensor] = []
        for first in range(0, transform.num_embeddings, CHUNK):
            ids = np.arange(first, min(first + CHUNK, transform.num_embeddings))
            routed = transform.route(JaggedIds(values=ids, lengths=np.ones(len(ids), np.int32)))
            vectors = [
                _summed(weights[lookup.part], each) for lookup, each in zip(transform.lookups, routed, strict=False)
            ]
            with torch.no_grad():
                made.append(combine(vectors))
        return torch.cat(made)


class StoredTables(nn.Module, StoredModule):
    """Pooled embedding tables of which some are compressed. transforms: how, by table name."""

    reads_by_name = True

    def __init__(
        self, configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool = False,
        *, transforms: Mapping[str, EmbeddingTransform],
    ) -> None:  # fmt: skip
        super().__init__()
        self.logical = tuple(StoredTable(config, transforms.get(config.name)) for config in configs)
        self.combine = Combined(self.logical)
        stored: Any = self.stored()
        self.tables = EmbeddingBagCollection(tables=stored, device=device, is_weighted=is_weighted)

    def embedding_bag_configs(self) -> list[Any]:
        """TorchRec's configs of the logical tables."""
        return [table.logical_config() for table in self.logical]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Look up pooled vectors (B, D) of each logical feature. features: the physical features."""
        return self.combine(self.tables(features), features)

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights of each physical table, by name."""
        return {name: each.weight for name, each in self.tables.embedding_bags.items()}  # type: ignore[misc]


class Combined(nn.ModuleList):
    """Combines the vectors of each compressed table.

    It holds no tables, so TorchRec's pipelines run it as a whole.
    """

    def __init__(self, tables: Sequence[StoredTable]) -> None:
        super().__init__(Same() if table.transform is None else table.transform.combination() for table in tables)
        self.stored = tuple(tables)

    def forward(self, pooled: KeyedTensor, features: KeyedJaggedTensor) -> KeyedTensor:
        """Combine pooled vectors of physical features into those of logical features (B, D)."""
        found = pooled.to_dict()
        names = [name for table in self.stored for name in table.logical_config().feature_names]
        vectors = [
            vector
            for table, combine in zip(self.stored, self, strict=True)
            for feature in table.config.feature_names
            for vector in _vector(table, combine, feature, found, features).split(table.config.embedding_dim, dim=1)
        ]
        return KeyedTensor(names, [vector.shape[1] for vector in vectors], torch.cat(vectors, dim=1))


def _vector(
    table: StoredTable, combine: nn.Module, feature: str, found: dict[str, torch.Tensor], features: KeyedJaggedTensor
) -> torch.Tensor:
    """The pooled vectors of one feature; for means, the combined sums are divided by the number of ids."""
    transform = table.transform
    if transform is None:
        return found[feature]
    names = [physical(feature, lookup.name) for lookup in transform.lookups]
    vector = combine([found[name] for name in names])
    if getattr(table.config, "pooling", PoolingType.SUM) == PoolingType.SUM:
        return vector
    lengths = torch.stack([features[names[i]].lengths() for i in transform.cover]).sum(dim=0)
    return vector / lengths.clamp(min=1).unsqueeze(1)


def _initial(config: BaseEmbeddingConfig, part: PhysicalTable | None) -> InitialWeights:
    """Initial weights around the part's center, with its reach, or TorchRec's reach if it has none."""
    usual = torchrec_initial(config)
    if part is None:
        return usual
    return usual._replace(center=part.center, reach=usual.reach if part.reach is None else part.reach)


def _summed(weight: torch.Tensor, ids: JaggedIds) -> torch.Tensor:
    """The sum of the rows of each bag (B, columns)."""
    offsets = torch.from_numpy(np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths)
    return torch.nn.functional.embedding_bag(torch.from_numpy(ids.values), weight, offsets, mode="sum")
