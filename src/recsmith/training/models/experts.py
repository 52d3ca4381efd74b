"""Experts and gates, from which models of several labels are made.

B samples, D columns, E experts
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn


class PooledAndDense(nn.Module):
    """Dense columns and pooled vectors, concatenated (B, D). tables: the model's pooled tables."""

    def __init__(self, tables: Any, dense: int) -> None:
        super().__init__()
        self.tables = tables
        self.columns: int = pooled_columns(tables) + dense

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Concatenated columns (B, D)."""
        return torch.cat([dense_features, self.tables(sparse_features).values()], dim=1)


def pooled_columns(tables: Any) -> int:
    """Columns that pooled tables return for a sample."""
    return sum(each.embedding_dim * len(each.feature_names) for each in tables.embedding_bag_configs())


class Experts(nn.Module):
    """Experts that read the same columns: each is a stack of layers with ReLU."""

    def __init__(self, count: int, columns: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.each = nn.ModuleList(layers((columns, *sizes)) for _ in range(count))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The output of each expert (B, units)."""
        return [expert(x) for expert in self.each]


class Gate(nn.Module):
    """A mixture of experts, weighted by a softmax over the gate's input."""

    def __init__(self, columns: int, experts: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(columns, experts, bias=False)

    def forward(self, x: torch.Tensor, said: Sequence[torch.Tensor]) -> torch.Tensor:
        """The mixture (B, units). x: the gate's input (B, D). said: outputs of the experts, (B, units) each."""
        shares = self.weigh(x).softmax(dim=1)  # (B, E)
        return (torch.stack(list(said), dim=2) * shares[:, None, :]).sum(dim=2)


def layers(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers, each followed by ReLU."""
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*made)


def tower(columns: int, sizes: Sequence[int], dropout: float, labels: int = 1) -> nn.Sequential:
    """The layers of one label, or of all labels, ending in a logit for each (B, labels)."""
    return nn.Sequential(nn.Dropout(dropout), *layers((columns, *sizes)), nn.Linear((columns, *sizes)[-1], labels))
