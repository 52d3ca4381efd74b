"""Torch modules that combine the vectors of a feature's lookups into the feature's vector.

B samples, D columns of a logical table
"""

from collections.abc import Sequence

import torch
from torch import nn


class Same(nn.Module):
    """Returns the vector of the only lookup."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """The vector (B, D). vectors: a single one (B, D)."""
        return vectors[0]


class Padded(nn.Module):
    """Pads the vector of the only lookup with zeros to the table's width."""

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """The padded vector (B, D). vectors: a single one (B, stored columns)."""
        return nn.functional.pad(vectors[0], (0, self.embedding_dim - vectors[0].shape[1]))


class Sums(nn.Module):
    """Sums over partitions, which gives the same result before and after bags are pooled."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """The sum (B, D). vectors: one per partition (B, D)."""
        return torch.stack(vectors).sum(dim=0)


class Concatenation(nn.Module):
    """Concatenates the columns of all partitions."""

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """The concatenated vectors. vectors: one per partition (B, D / K); (B, D) if partitions are features."""
        return torch.cat(vectors, dim=1)


class Products(nn.Module):
    """Multiplies over partitions, id by id, then sums over the positions of a bag; an empty position adds nothing."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    def forward(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """The sum of products (B, D). vectors: one per position and partition (B, D), partitions varying fastest."""
        placed = torch.stack(vectors).reshape(-1, self.partitions, *vectors[0].shape)
        return placed.prod(dim=1).sum(dim=0)


class Projections(nn.Module):
    """Projects blocks to the table's width and adds them; a block of that width is not projected."""

    def __init__(self, blocks: Sequence[tuple[int, int]], embedding_dim: int) -> None:
        """Create the projections. blocks: for each block its columns, and the ids that share a physical row."""
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
        """The sum of projections (B, D). vectors: one per block and lane (B, columns of the physical table)."""
        made: list[torch.Tensor] = []
        first = 0
        for (width, lanes), project in zip(self.blocks, self.project, strict=True):
            beside = [vectors[first + lane][:, lane * width : (lane + 1) * width] for lane in range(lanes)]
            made.append(project(torch.stack(beside).sum(dim=0)))
            first += lanes
        return torch.stack(made).sum(dim=0)


class Networks(nn.Module):
    """Applies to each id's vector the network of its quotient, then sums over networks and positions of a bag.

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
        """The sum of outputs (B, D). vectors: one per position and network (B, D), networks varying fastest."""
        placed = torch.stack(vectors).reshape(-1, len(self.inner), *vectors[0].shape)
        hidden = torch.einsum("pqbd,qdh->pqbh", placed, self.inner).relu()
        return torch.einsum("pqbh,qhd->bd", hidden, self.outer)
