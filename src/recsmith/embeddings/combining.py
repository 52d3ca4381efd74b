"""The vectors of logical features, put together from those of physical ones, in torch.

B samples, D columns of a logical table
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, KeyedTensor
from torchrec.modules.embedding_configs import PoolingType

from recsmith.embeddings.compositional import Compositional
from recsmith.embeddings.mixed_dimension import MixedDimension
from recsmith.embeddings.parts import EmbeddingTransform, physical
from recsmith.embeddings.path_based import PathBased


@dataclass(frozen=True)
class StoredTable:
    """A logical table as a model has it, and how it is stored; None: as it is."""

    config: EmbeddingBagConfig
    transform: EmbeddingTransform | None = None

    @property
    def generates(self) -> bool:
        """Whether each partition is a feature of its own to the model."""
        return isinstance(self.transform, Compositional) and self.transform.operation == "generate"

    def logical_config(self) -> EmbeddingBagConfig:
        """TorchRec's config that the model sees: of the table, a feature for each partition where it generates."""
        if self.transform is None or not self.generates:
            return self.config
        names = [physical(name, lookup.name) for name in self.config.feature_names for lookup in self.transform.lookups]
        return replace(self.config, feature_names=names)

    def physical_configs(self) -> list[EmbeddingBagConfig]:
        """TorchRec's configs of the physical tables. They pool by sums: means are taken of what is put together."""
        if self.transform is None:
            return [self.config]
        lookups = self.transform.lookups
        return [
            EmbeddingBagConfig(
                name=physical(self.config.name, part.name),
                num_embeddings=part.num_embeddings,
                embedding_dim=part.embedding_dim,
                feature_names=[
                    physical(feature, lookup.name)
                    for feature in self.config.feature_names
                    for lookup in lookups
                    if lookup.part == number
                ],
                pooling=PoolingType.SUM,
                data_type=self.config.data_type,
            )
            for number, part in enumerate(self.transform.parts)
        ]


class StoredTables(nn.Module):
    """Embedding tables that are stored smaller; to a model they are an EmbeddingBagCollection of logical tables."""

    def __init__(self, tables: Sequence[StoredTable], device: torch.device, *, is_weighted: bool = False) -> None:
        super().__init__()
        self.stored = tuple(tables)
        self.combine = Combined(self.stored)
        configs = [config for table in tables for config in table.physical_configs()]
        self.tables = EmbeddingBagCollection(tables=configs, device=device, is_weighted=is_weighted)

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """TorchRec's configs of the logical tables."""
        return [table.logical_config() for table in self.stored]

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Pooled vectors (B, D) of each logical feature. features: the physical ones."""
        return self.combine(self.tables(features), features)


class Combined(nn.ModuleList):
    """How the vectors of each stored table are put together. It has no tables: TorchRec's pipelines run it whole."""

    def __init__(self, tables: Sequence[StoredTable]) -> None:
        super().__init__(combination(table.transform) for table in tables)
        self.stored = tuple(tables)

    def forward(self, pooled: KeyedTensor, features: KeyedJaggedTensor) -> KeyedTensor:
        """Pooled vectors (B, D) of each logical feature from those of the physical ones."""
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
    """The vectors of one feature; where its table pools by means, of what is put together."""
    transform = table.transform
    if transform is None:
        return found[feature]
    names = [physical(feature, lookup.name) for lookup in transform.lookups]
    vector = combine([found[name] for name in names])
    if table.config.pooling == PoolingType.SUM:
        return vector
    lengths = torch.stack([features[names[i]].lengths() for i in transform.cover]).sum(dim=0)
    return vector / lengths.clamp(min=1).unsqueeze(1)


def combination(transform: EmbeddingTransform | None) -> nn.Module:
    """The module that puts the vectors of a transform's lookups together."""
    if isinstance(transform, MixedDimension):
        return Projections(transform)
    if isinstance(transform, Compositional):
        if transform.operation == "multiply":
            return Products(len(transform.sizes))
        return Sums() if transform.operation == "add" else Concatenation()
    if isinstance(transform, PathBased):
        return Networks(transform)
    return Same()


class Same(nn.Module):
    """The vector of the one lookup."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: one (B, D)."""
        return vectors[0]


class Sums(nn.Module):
    """The sum over partitions; it may be taken after bags are summed."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each partition (B, D)."""
        return torch.stack(vectors).sum(dim=0)


class Concatenation(nn.Module):
    """Columns of all partitions, side by side."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each partition (B, D / K); where they are features of their own (B, D)."""
        return torch.cat(vectors, dim=1)


class Products(nn.Module):
    """Products over partitions, id by id, then summed over the places of a bag; an empty place adds nothing."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each partition at each place in a bag (B, D), partitions of a place side by side."""
        placed = torch.stack(vectors).reshape(-1, self.partitions, *vectors[0].shape)
        return placed.prod(dim=1).sum(dim=0)


class Projections(nn.Module):
    """Blocks projected to the table's width and added up; a block of that width is taken as it is."""

    def __init__(self, transform: MixedDimension) -> None:
        super().__init__()
        self.blocks = transform.blocks
        self.project = nn.ModuleList(
            nn.Identity()
            if block.embedding_dim == transform.embedding_dim
            else nn.Linear(block.embedding_dim, transform.embedding_dim, bias=False)
            for block in transform.blocks
        )
        for linear in self.project:
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each block and lane (B, columns of its physical table)."""
        made: list[torch.Tensor] = []
        first = 0
        for block, project in zip(self.blocks, self.project, strict=True):
            width = block.embedding_dim
            lanes = [vectors[first + lane][:, lane * width : (lane + 1) * width] for lane in range(block.lanes)]
            made.append(project(torch.stack(lanes).sum(dim=0)))
            first += block.lanes
        return torch.stack(made).sum(dim=0)


class Networks(nn.Module):
    """Each vector through the network of its quotient, id by id, then summed over networks and places of a bag.

    Q networks, H hidden columns
    """

    def __init__(self, transform: PathBased) -> None:
        super().__init__()
        count, width, hidden = transform.networks, transform.embedding_dim, transform.hidden
        self.inner = nn.Parameter(torch.empty(count, width, hidden))
        self.outer = nn.Parameter(torch.empty(count, hidden, width))
        for matrices in (self.inner, self.outer):
            for matrix in matrices:
                nn.init.xavier_uniform_(matrix)

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each place, and of each network within it (B, D)."""
        placed = torch.stack(vectors).reshape(-1, len(self.inner), *vectors[0].shape)
        hidden = torch.einsum("pqbd,qdh->pqbh", placed, self.inner).relu()
        return torch.einsum("pqbh,qhd->bd", hidden, self.outer)
