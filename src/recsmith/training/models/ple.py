"""PLE: own experts for each label next to shared experts, in levels (Tang et al. 2020, RecSys, section 4).

B samples, D columns, L labels
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from recsmith.training.models.experts import Experts, Gate, PooledAndDense, tower
from recsmith.training.models.pooled_settings import PLESettings


class PLE(nn.Module):
    """Logits of each label (B, L)."""

    settings_noun = PLESettings

    def __init__(self, settings: PLESettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        self.together = PooledAndDense(tables, dense)
        columns, wide, last = self.together.columns, settings.expert[-1], settings.levels - 1
        self.levels = nn.ModuleList(
            ExpertLevel(settings, wide if at else columns, labels, passes_on=at < last) for at in range(settings.levels)
        )
        self.towers = nn.ModuleList(tower(wide, settings.tower, settings.dropout) for _ in range(labels))

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        x = self.together(dense_features, sparse_features)
        seen = [x] * (len(self.towers) + 1)
        for level in self.levels:
            seen = level(seen)
        return torch.cat([each(seen[at]) for at, each in enumerate(self.towers)], dim=1)


class ExpertLevel(nn.Module):
    """Experts of each label, shared experts, and the gates above them. passes_on: whether another level follows."""

    def __init__(self, settings: PLESettings, columns: int, labels: int, *, passes_on: bool) -> None:
        super().__init__()
        self.own = nn.ModuleList(Experts(settings.own, columns, settings.expert) for _ in range(labels))
        self.shared = Experts(settings.shared, columns, settings.expert)
        self.gates = nn.ModuleList(Gate(columns, settings.own + settings.shared) for _ in range(labels))
        every = labels * settings.own + settings.shared
        self.shared_gate = Gate(columns, every) if passes_on else None

    def forward(self, seen: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The next inputs of each label, and of shared experts (L + 1 of (B, D)). seen: the inputs of this level."""
        shared = self.shared(seen[-1])
        own = [experts(x) for experts, x in zip(self.own, seen, strict=False)]
        found = [gate(x, [*mine, *shared]) for gate, x, mine in zip(self.gates, seen, own, strict=False)]
        every = [each for mine in own for each in mine]
        return found if self.shared_gate is None else [*found, self.shared_gate(seen[-1], [*every, *shared])]
