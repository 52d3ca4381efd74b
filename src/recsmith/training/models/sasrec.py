"""SASRec: a transformer over a history, where each event attends to earlier ones; its last vector scores the target.

B samples, T positions of all samples, D columns, G samples of one length, n positions of each, H heads
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from recsmith.errors import UsageError
from recsmith.training.models.jagged import SameLength, added, by_length, layout, newest, products, spread
from recsmith.training.models.settings import SASRecSettings
from recsmith.training.models.tables import events_of

EPSILON = 1e-8  # epsilon of the paper's norms


class SASRec(nn.Module):
    """Logits for a target, given a history (B, 1)."""

    settings_noun = SASRecSettings

    def __init__(self, settings: SASRecSettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        width = sequences.embedding_configs()[0].embedding_dim
        if labels != 1:
            raise UsageError(f"sasrec gives one logit, and the data has {labels} labels; name one, or take hstu")
        if width % settings.heads:
            raise UsageError(
                f"model.arguments.heads is {settings.heads}, and tables have {width} columns; heads of sasrec share "
                "them evenly"
            )
        self.sequences = sequences
        self.body = SASRecBody(settings, width)

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits of targets (B, 1), or of K candidates for each sample (B, K)."""
        return self.body(self.sequences(sparse_features))

    def encode(self, sparse_features: Any) -> torch.Tensor:
        """User vectors (B, D), whose products with a table's rows score items."""
        return self.body.encode(self.sequences(sparse_features))


class Norm(nn.LayerNorm):
    """PyTorch's LayerNorm with weights converted to the input's type, because on a CPU it does not mix two types."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (the name that callers know)
        """The normalized input, in the input's type."""
        weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
        return functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class SASRecBody(nn.Module):
    """The model without its tables."""

    def __init__(self, settings: SASRecSettings, width: int) -> None:
        super().__init__()
        self.settings = settings
        self.place = nn.Parameter(torch.empty(settings.longest, width).normal_(std=math.sqrt(1 / width)))
        self.blocks = nn.ModuleList(SASRecBlock(settings, width) for _ in range(settings.blocks))
        self.norm = Norm(width, eps=EPSILON)

    def forward(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """Logits (B, K)."""
        return products(self.encode(rows), added(rows, self.settings.target), self.settings.target[0])

    def encode(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """The vectors at the last positions (B, D); zero without a history."""
        names = events_of(self.settings)
        values, lengths = newest(added(rows, names), self.settings.longest)
        places = layout([lengths])
        x = places.laid([values])
        x = x * math.sqrt(x.shape[1]) + self.place.index_select(0, places.place)
        x = functional.dropout(x, self.settings.dropout, self.training)
        for block in self.blocks:
            x = block(x, places.groups)
        return spread(self.norm(x.index_select(0, places.last)), places.samples, len(lengths))


class SASRecBlock(nn.Module):
    """One layer: attention, then two linear layers at each position."""

    def __init__(self, settings: SASRecSettings, width: int) -> None:
        super().__init__()
        hidden = settings.hidden or width
        self.heads, self.dropout = settings.heads, settings.dropout
        self.before, self.between = (Norm(width, eps=EPSILON) for _ in range(2))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.feed = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(settings.dropout), nn.Linear(hidden, width),
            nn.Dropout(settings.dropout),
        )  # fmt: skip

    def forward(self, x: torch.Tensor, groups: Sequence[SameLength]) -> torch.Tensor:
        """The layer's output (T, D)."""
        normed = self.before(x)
        q, k, v = self.query(normed), self.key(x), self.value(x)
        attended = [self.attend(*each) for each in zip(*by_length(groups, q, k, v), strict=True)]
        y = self.between(normed + self.out(torch.cat(attended) if attended else v + 0 * (q.sum() + k.sum())))
        return y + self.feed(y)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention output for samples of one length (G n, D). q, k, v: (G, n, D)."""
        samples, length = q.shape[:2]
        heads = [each.view(samples, length, self.heads, -1).transpose(1, 2) for each in (q, k, v)]
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(*heads, dropout_p=dropout, is_causal=True)
        return seen.transpose(1, 2).reshape(samples * length, -1)
