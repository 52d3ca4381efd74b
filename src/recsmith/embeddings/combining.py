"""Torch modules that put the vector of a feature together from those of its physical features.

B samples, D columns of a logical table
"""

from collections.abc import Sequence

import torch
from torch import nn


class Same(nn.Module):
    """The vector of the one lookup."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: one (B, D)."""
        return vectors[0]


class Padded(nn.Module):
    """The vector of the one lookup, and zeros to the table's width."""

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: one (B, its columns)."""
        return nn.functional.pad(vectors[0], (0, self.embedding_dim - vectors[0].shape[1]))


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

    def __init__(self, blocks: Sequence[tuple[int, int]], embedding_dim: int) -> None:
        """blocks: columns of each, and ids that share one of its physical rows."""
        super().__init__()
        self.blocks = tuple(blocks)
        self.project = nn.ModuleList(
            nn.Identity() if width == embedding_dim else nn.Linear(width, embedding_dim, bias=False)
            for width, _ in blocks
        )
        for linear in self.project:
            if isinstance(linear, nn.Linear):
                nn.init.xavier_uniform_(linear.weight)

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """vectors: of each block and lane (B, columns of its physical table)."""
        made: list[torch.Tensor] = []
        first = 0
        for (width, lanes), project in zip(self.blocks, self.project, strict=True):
            beside = [vectors[first + lane][:, lane * width : (lane + 1) * width] for lane in range(lanes)]
            made.append(project(torch.stack(beside).sum(dim=0)))
            first += lanes
        return torch.stack(made).sum(dim=0)


class Networks(nn.Module):
    """Each vector through the network of its quotient, id by id, then summed over networks and places of a bag.

    Q networks, H hidden columns
    """

    def __init__(self, count: int, width: int, hidden: int) -> None:
        super().__init__()
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
