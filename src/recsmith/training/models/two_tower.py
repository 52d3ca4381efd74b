"""Two towers: user vectors and item vectors, trained to tell a user's item from the other items of the batch.

The logit of item j for sample i is u_i v_j / temperature - log q_j, where q_j is the share of samples with item j,
because that is how often it is among the other items of a batch (Yi et al. 2019, RecSys, equations 3 and 4). Shares are
counted during training. The batch is that of all ranks, so that losses do not depend on the number of ranks.

B samples of this rank, R ranks, D columns, N = R B items of the batch
"""

from collections import Counter
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional as collectives

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.models.pooled_settings import TwoTowerSettings
from recsmith.training.tables.plain import outputs_of


class TwoTower(nn.Module):
    """In training, logits of a sample's own item and of the batch's items (B, 1 + N); otherwise of its own (B,)."""

    settings_noun = TwoTowerSettings

    def __init__(self, settings: TwoTowerSettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        if labels != 1:
            raise UsageError(f"two_tower learns one label, whether the item is the user's, and the data has {labels}")
        self.tables = tables
        self.body = TwoTowerBody(settings, tables.embedding_bag_configs(), dense)

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits."""
        return self.body(dense_features, self.tables(sparse_features), sparse_features)

    def users(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """User vectors (B, D), whose products with item vectors are scores."""
        return self.body.users(dense_features, self.tables(sparse_features))

    def items(self, sparse_features: Any) -> torch.Tensor:
        """Item vectors (B, D)."""
        return self.body.items(self.tables(sparse_features))


class TwoTowerBody(nn.Module):
    """The model without its tables. counts: number of samples with each item, over all ranks, since training began."""

    counts: torch.Tensor

    def __init__(self, settings: TwoTowerSettings, configs: Any, dense: int) -> None:
        super().__init__()
        outputs = outputs_of(configs)
        widths, rows, self.names = Counter[str](), dict[str, int](), dict[str, list[str]]()
        for each in outputs:
            widths[each.feature] += each.config.embedding_dim
            rows[each.feature] = max(rows.get(each.feature, 0), each.config.num_embeddings)
            self.names.setdefault(each.feature, []).append(each.name)
        odd = next((name for name in (*settings.user, *settings.item) if name not in widths), None)
        if odd is not None:
            raise UsageError(
                f"two_tower reads feature '{odd}', and no table looks it up{did_you_mean(odd, list(widths))}; name "
                "those of the data in model.arguments.user and item"
            )
        left = next((name for name in widths if name not in (*settings.user, *settings.item)), None)
        if left is not None:
            raise UsageError(
                f"feature '{left}' is in neither tower; add it to model.arguments.user or item, or name model.tables "
                "without it"
            )
        self.settings = settings
        self.user = _layers((sum(widths[name] for name in settings.user) + dense, *settings.layers))
        self.item = _layers((sum(widths[name] for name in settings.item), *settings.layers))
        self.register_buffer(
            "counts", torch.zeros(rows[settings.item[0]] if settings.correct else 0, dtype=torch.int64)
        )

    def forward(self, dense_features: torch.Tensor, pooled: Any, sparse_features: Any) -> torch.Tensor:
        """In training, logits of a sample's own item and of the batch's items (B, 1 + N); otherwise of its own (B,)."""
        users, items = self.users(dense_features, pooled), self.items(pooled)
        if not (self.training and torch.is_grad_enabled()):
            return (users * items).sum(dim=1)
        ids = self._ids(sparse_features)
        return self._among(users, *_of_all_ranks(items, ids))

    def users(self, dense_features: torch.Tensor, pooled: Any) -> torch.Tensor:
        """User vectors (B, D), already divided by the temperature."""
        vectors = torch.cat([dense_features, *self._vectors(pooled, self.settings.user)], dim=1)
        return nn.functional.normalize(self.user(vectors), dim=1) / self.settings.temperature

    def items(self, pooled: Any) -> torch.Tensor:
        """Item vectors (B, D), of length 1."""
        vectors = torch.cat(self._vectors(pooled, self.settings.item), dim=1)
        return nn.functional.normalize(self.item(vectors), dim=1)

    def _vectors(self, pooled: Any, features: tuple[str, ...]) -> list[torch.Tensor]:
        """The vectors of features from all tables that look them up, (B, columns) each."""
        return [pooled[name] for feature in features for name in self.names[feature]]

    def _ids(self, sparse_features: Any) -> torch.Tensor:
        """The id of each sample's item (B,); -1 for empty samples."""
        name = self.settings.item[0]
        if name not in sparse_features.keys():  # noqa: SIM118
            raise UsageError(
                f"two_tower tells items apart by feature '{name}', whose ids its table does not look up as they are; "
                "store that table whole"
            )
        found = sparse_features[name]
        values, lengths = found.values(), found.lengths()
        if bool((lengths > 1).any()):
            raise UsageError(
                f"two_tower takes feature '{name}' as the item's id, and a sample has several; give it one"
            )
        ids = torch.full((len(lengths),), -1, dtype=torch.int64, device=values.device)
        ids[lengths > 0] = values.long()
        return ids

    def _among(self, users: torch.Tensor, items: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits (B, 1 + N) of a sample's own item, and of all ranks' items (N,) that differ from it."""
        first = dist.get_rank() * len(users) if len(ids) > len(users) else 0
        mine = ids[first : first + len(users)]
        logits = users @ items.T  # (B, N)
        if self.settings.correct:
            known = ids.clamp(min=0)
            self.counts.index_add_(0, known, (ids >= 0).long())
            logits = logits - (self.counts[known].clamp(min=1) / self.counts.sum()).log()
        own = logits[:, first : first + len(users)].diagonal()[:, None]
        same = (mine[:, None] == ids[None, :]) | (ids < 0)[None, :]
        return torch.cat([own, logits.masked_fill(same, float("-inf"))], dim=1)


def _of_all_ranks(items: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors (N, D) and ids (N,) of all ranks' items; this rank's if there are no other ranks."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return items, ids
    parts = [torch.empty_like(ids) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, ids)
    return torch.cat(collectives.all_gather(items)), torch.cat(parts)  # its backward pass sums over all ranks


def _layers(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    made: list[nn.Module] = []
    for before, after in pairwise(sizes):
        made += [nn.ReLU()] if made else []
        made.append(nn.Linear(before, after))
    return nn.Sequential(*made)
