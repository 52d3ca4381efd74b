"""DIN: a history's events are summed, each weighted by how well it fits the target; then layers as in other models.

B samples, T events of all samples, D columns, L labels
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from recsmith.training.models.experts import pooled_columns
from recsmith.training.models.jagged import added, check_single, newest, spread
from recsmith.training.models.settings import DINSettings
from recsmith.training.models.tables import events_of


class DIN(nn.Module):
    """Logits for a target, given a history (B, L)."""

    settings_noun = DINSettings

    def __init__(self, settings: DINSettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        pooled = 0 if tables is None else pooled_columns(tables)
        self.sequences, self.tables = sequences, tables
        self.body = DINBody(settings, sequences.embedding_configs()[0].embedding_dim, pooled + dense, labels)

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        others = [dense_features]
        if self.tables is not None:
            others.append(self.tables(sparse_features).values())
        return self.body(self.sequences(sparse_features), others)


class DINBody(nn.Module):
    """The model without its tables. others: number of columns of pooled tables and dense values."""

    def __init__(self, settings: DINSettings, width: int, others: int, labels: int) -> None:
        super().__init__()
        self.settings = settings
        self.weigh = perceptron((4 * width, *settings.attention, 1), nn.Sigmoid)
        self.top = perceptron((2 * width + others, *settings.top, labels), nn.PReLU, settings.dropout)

    def forward(self, rows: Mapping[str, Any], others: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits (B, L)."""
        target, given = added(rows, self.settings.target)
        check_single(self.settings.target[0], given)
        names = events_of(self.settings)
        events, lengths = newest(added(rows, names), self.settings.longest)
        scored = spread(target, given.nonzero()[:, 0], len(given))
        sample = torch.repeat_interleave(torch.arange(len(lengths), device=events.device), lengths.long())
        beside = scored.index_select(0, sample)
        weights = self.weigh(torch.cat([events, beside, events - beside, events * beside], dim=1))
        pooled = torch.zeros_like(scored).index_add(0, sample, weights * events)
        return self.top(torch.cat([pooled, scored, *others], dim=1))


def perceptron(sizes: Sequence[int], activation: type[nn.Module], dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with an activation between two of them."""
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [activation(), nn.Dropout(dropout)] if made else []
        made.append(nn.Linear(before, after))
    return nn.Sequential(*made)
