"""Experts and gates, of which models of several labels are made.

B samples, D columns, E experts
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn


class PooledAndDense(nn.Module):
    """Pooled vectors and dense columns side by side (B, D). tables: of the model."""

    def __init__(self, tables: Any, dense: int) -> None:
        super().__init__()
        self.tables = tables
        self.columns: int = pooled_columns(tables) + dense

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """(B, D)."""
        return torch.cat([dense_features, self.tables(sparse_features).values()], dim=1)


def pooled_columns(tables: Any) -> int:
    """Columns of what pooled tables return of a sample."""
    return sum(each.embedding_dim * len(each.feature_names) for each in tables.embedding_bag_configs())


class Experts(nn.Module):
    """Experts that look at the same columns: each some layers with ReLU."""

    def __init__(self, count: int, columns: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.each = nn.ModuleList(layers((columns, *sizes)) for _ in range(count))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """What each says (B, units)."""
        return [expert(x) for expert in self.each]


class Gate(nn.Module):
    """A mixture of experts by a softmax of what it sees."""

    def __init__(self, columns: int, experts: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(columns, experts, bias=False)

    def forward(self, x: torch.Tensor, said: Sequence[torch.Tensor]) -> torch.Tensor:
        """(B, units). x: what it sees (B, D). said: by each expert (B, units)."""
        shares = self.weigh(x).softmax(dim=1)  # (B, E)
        return (torch.stack(list(said), dim=2) * shares[:, None, :]).sum(dim=2)


def layers(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers, each with ReLU behind it."""
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*made)


def tower(columns: int, sizes: Sequence[int], dropout: float, labels: int = 1) -> nn.Sequential:
    """The layers of a label, or of all, and the logit of each (B, labels)."""
    return nn.Sequential(nn.Dropout(dropout), *layers((columns, *sizes)), nn.Linear((columns, *sizes)[-1], labels))
