"""Wide and deep: weights of ids that add up to a logit, plus layers over vectors (Cheng et al. 2016, DLRS).

A feature may be looked up in a table of either kind, or in both; its outputs are then 'user@user' and 'user@user_wide'.

B samples, L labels
"""

from typing import Any

import torch
from torch import nn

from recsmith.errors import UsageError
from recsmith.training.models.experts import tower
from recsmith.training.models.pooled_settings import WideDeepSettings
from recsmith.training.tables.plain import Output, outputs_of
from recsmith.workloads.patterns import fits


class WideDeep(nn.Module):
    """Logits of each label (B, L)."""

    settings_noun = WideDeepSettings

    def __init__(self, settings: WideDeepSettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        self.tables = tables
        self.body = WideDeepBody(settings, outputs_of(tables.embedding_bag_configs()), dense, labels)

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        return self.body(dense_features, self.tables(sparse_features))


class WideDeepBody(nn.Module):
    """The model without its tables."""

    def __init__(self, settings: WideDeepSettings, outputs: list[Output], dense: int, labels: int) -> None:
        super().__init__()
        wide = [each for each in outputs if any(fits(like, each.config.name) for like in settings.wide)]
        deep = [each for each in outputs if each not in wide]
        for kind, found in (("weights", wide), ("vectors", deep)):
            if not found:
                raise UsageError(
                    f"wide_deep has no table of {kind}: its tables are "
                    f"{', '.join(dict.fromkeys(each.config.name for each in outputs))}, and those of weights fit "
                    f"model.arguments.wide, {list(settings.wide)}; name some that do and some that do not"
                )
        self.names = [[each.name for each in part] for part in (wide, deep)]
        columns = [sum(each.config.embedding_dim for each in part) for part in (wide, deep)]
        self.wide = nn.Linear(columns[0], labels, bias=False)
        self.deep = tower(columns[1] + dense, settings.layers, settings.dropout, labels)

    def forward(self, dense_features: torch.Tensor, pooled: Any) -> torch.Tensor:
        """Logits (B, L)."""
        wide, deep = ([pooled[name] for name in names] for names in self.names)
        return self.wide(torch.cat(wide, dim=1)) + self.deep(torch.cat([dense_features, *deep], dim=1))
