"""MMoE: experts that all labels share, and a gate of each label that mixes them (Ma et al. 2018, KDD, equations 6-7).

B samples, L labels
"""

from typing import Any

import torch
from torch import nn

from recsmith.training.models.experts import Experts, Gate, PooledAndDense, tower
from recsmith.training.models.pooled_settings import MMoESettings


class MMoE(nn.Module):
    """Logits of each label (B, L)."""

    settings_noun = MMoESettings

    def __init__(self, settings: MMoESettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        self.together = PooledAndDense(tables, dense)
        columns, wide = self.together.columns, settings.expert[-1]
        self.experts = Experts(settings.experts, columns, settings.expert)
        self.gates = nn.ModuleList(Gate(columns, settings.experts) for _ in range(labels))
        self.towers = nn.ModuleList(tower(wide, settings.tower, settings.dropout) for _ in range(labels))

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        x = self.together(dense_features, sparse_features)
        said = self.experts(x)
        return torch.cat([each(gate(x, said)) for gate, each in zip(self.gates, self.towers, strict=True)], dim=1)
