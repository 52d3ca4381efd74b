"""HSTU: layers of pointwise attention over a history, with gates and a bias by position and time (arXiv 2402.17152).

A layer, of x (T, D): u, v, q, k = silu(norm(x) W); a = silu(q k' + bias) v / n; x + norm(a) u W'. Each position attends
to earlier positions and itself; n is the largest number of positions.

B samples, T positions of all samples, D columns, L labels, G samples of one length, n positions of each, H heads
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from recsmith.errors import UsageError
from recsmith.training.models.jagged import (
    CarriedNumbers,
    Layout,
    Part,
    SameLength,
    added,
    by_length,
    check_alike,
    check_single,
    layout,
    newest,
    products,
    spread,
)
from recsmith.training.models.settings import HSTUSettings
from recsmith.training.models.tables import carried, events_of

BUCKET = 0.301  # bucket width, in natural logarithm of seconds, as in the authors' code
STD = 0.02  # standard deviation of initial weights, as in the authors' code
EPSILON = 1e-6


class HSTU(nn.Module):
    """Logits for a target, given a history (B, L)."""

    settings_noun = HSTUSettings

    def __init__(self, settings: HSTUSettings, sequences: Any, tables: Any, dense: int, labels: int) -> None:
        super().__init__()
        if settings.score == "dot" and labels != 1:
            raise UsageError(
                f"model.arguments.score is dot, which gives one logit, and the data has {labels} labels; write target"
            )
        self.sequences = sequences
        self.carried = CarriedNumbers(carried(settings))
        self.body = HSTUBody(settings, sequences.embedding_configs()[0].embedding_dim, labels)

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:
        """Logits (B, L)."""
        return self.body(self.sequences(sparse_features), self.carried(sparse_features))

    def encode(self, sparse_features: Any) -> torch.Tensor:
        """User vectors (B, D), whose products with a table's rows score items; for score: dot."""
        rows, numbers = self.sequences(sparse_features), self.carried(sparse_features)
        return self.body.encode(rows, numbers)


class HSTUBody(nn.Module):
    """The model without its tables."""

    def __init__(self, settings: HSTUSettings, width: int, labels: int) -> None:
        super().__init__()
        self.settings = settings
        self.positions = len(settings.context) + settings.longest + 1
        self.place = nn.Parameter(torch.empty(self.positions, width).normal_(std=math.sqrt(1 / width)))
        self.blocks = nn.ModuleList(HSTUBlock(settings, width, self.positions) for _ in range(settings.blocks))
        self.head = (
            nn.Sequential(nn.Linear(width, settings.hidden), nn.SiLU(), nn.Linear(settings.hidden, labels))
            if settings.score == "target"
            else None
        )

    def forward(self, rows: Mapping[str, Any], numbers: Mapping[str, Part]) -> torch.Tensor:
        """Logits (B, L)."""
        target, name = added(rows, self.settings.target), self.settings.target[0]
        if self.head is None:
            return products(self.encode(rows, numbers), target, name)
        check_single(name, target[1])
        return self.head(self.outputs(rows, numbers, target))

    def encode(self, rows: Mapping[str, Any], numbers: Mapping[str, Part]) -> torch.Tensor:
        """User vectors (B, D)."""
        users = self.outputs(rows, numbers, None)
        return users * math.sqrt(users.shape[1])

    def outputs(self, rows: Mapping[str, Any], numbers: Mapping[str, Part], target: Part | None) -> torch.Tensor:
        """The layers' output at the last position of each sample (B, D), of length 1; zero without a position."""
        events, times = self.events(rows, numbers)
        context = [added(rows, [name]) for name in self.settings.context]
        for name, (_, lengths) in zip(self.settings.context, context, strict=True):
            check_single(name, lengths)
        parts = [*context, events, *([] if target is None else [target])]
        places = layout([lengths for _, lengths in parts])
        x = places.laid([values for values, _ in parts])
        x = x * math.sqrt(x.shape[1]) + self.place.index_select(0, places.place)
        x = functional.dropout(x, self.settings.dropout, self.training)
        biases = self.buckets(places, parts, times, numbers, target is not None)
        for block in self.blocks:
            x = block(x, places.groups, biases)
        ends = functional.normalize(x.index_select(0, places.last), eps=EPSILON)
        return spread(ends, places.samples, len(events[1]))

    def events(self, rows: Mapping[str, Any], numbers: Mapping[str, Part]) -> tuple[Part, torch.Tensor | None]:
        """The vectors of the newest events of each history, and their times."""
        names = events_of(self.settings)
        vectors, lengths = added(rows, names)
        if self.settings.times is None:
            return newest((vectors, lengths), self.settings.longest), None
        times, counts = numbers[self.settings.times]
        check_alike(names[0], lengths, self.settings.times, counts)
        kept = newest((vectors, lengths), self.settings.longest)
        return kept, newest((times, lengths), self.settings.longest)[0]

    def buckets(
        self, places: Layout, parts: Sequence[Part], times: torch.Tensor | None, numbers: Mapping[str, Part],
        appended: bool,
    ) -> list[torch.Tensor | None]:  # fmt: skip
        """Of each group, the bucket of the time from event j to the event after event i (G, n, n); None without times.

        After the last event comes the target; if its time is unknown, the last event's own time counts.
        """
        if times is None:
            return [None for _ in places.groups]
        lengths = parts[len(self.settings.context)][1].long()
        count = len(lengths)
        ends = lengths.cumsum(0)
        check_in_order(times, lengths, self.settings.times)
        some = lengths > 0
        last = spread(times[ends[some] - 1], some.nonzero()[:, 0], count)
        first = spread(times[(ends - lengths)[some]], some.nonzero()[:, 0], count)
        if self.settings.target_time is not None:
            asked, given = numbers[self.settings.target_time]
            check_single(self.settings.target_time, given)
            known = given.nonzero()[:, 0]
            check_past(last, some, asked, known)
            last = last.index_copy(0, known, asked)
            first = torch.where(some, first, last)
        context = [first[lens.nonzero()[:, 0]] for _, lens in parts[: len(self.settings.context)]]
        ahead = [last[parts[-1][1].nonzero()[:, 0]]] if appended else []
        at = places.laid([*context, times, *ahead])
        after = torch.cat([at[1:], at[:1]])
        after = after.index_copy(0, places.last, last[places.samples])
        found: list[torch.Tensor | None] = []
        for group in places.groups:
            apart = (group.of(after)[:, :, None] - group.of(at)[:, None, :]).abs().clamp(min=1)
            found.append((apart.float().log() / BUCKET).long().clamp(0, self.settings.time_buckets))
        return found


def check_in_order(times: torch.Tensor, lengths: torch.Tensor, name: str | None) -> None:
    """UsageError if the times of a history decrease."""
    back = times[1:] < times[:-1]
    ends = lengths.cumsum(0)
    back[(ends[ends < len(times)] - 1).clamp(min=0)] = False  # times may decrease from one sample to the next
    if bool(back.any()):
        at = int(back.nonzero()[0])
        raise UsageError(
            f"feature '{name}' of a sample goes from {int(times[at])} back to {int(times[at + 1])}; a history's events "
            "stand in order of time, the oldest first"
        )


def check_past(last: torch.Tensor, some: torch.Tensor, asked: torch.Tensor, known: torch.Tensor) -> None:
    """UsageError if a history has an event later than its target, which would leak what is to be predicted."""
    leaks = some[known] & (last[known] > asked)
    if bool(leaks.any()):
        at = int(leaks.nonzero()[0])
        raise UsageError(
            f"a history has an event at {int(last[known][at])}, after its target at {int(asked[at])}; leave out what "
            "was not known yet (`format: sequences` does)"
        )


class HSTUBlock(nn.Module):
    """One layer."""

    def __init__(self, settings: HSTUSettings, width: int, positions: int) -> None:
        super().__init__()
        heads, self.keys, self.values = settings.heads, settings.attention_dim, settings.linear_dim
        self.heads, self.positions, self.dropout = heads, positions, settings.dropout
        self.uvqk = nn.Parameter(torch.empty(width, 2 * heads * (self.keys + self.values)).normal_(std=STD))
        self.out = nn.Linear(heads * self.values, width)
        nn.init.xavier_uniform_(self.out.weight)
        self.by_place = nn.Parameter(torch.empty(positions).normal_(std=STD))  # bias by the distance between positions
        self.by_time = nn.Parameter(torch.empty(settings.time_buckets + 1).normal_(std=STD)) if settings.times else None

    def forward(
        self, x: torch.Tensor, groups: Sequence[SameLength], buckets: Sequence[torch.Tensor | None]
    ) -> torch.Tensor:
        """The layer's output (T, D)."""
        normed = functional.layer_norm(x, x.shape[1:], eps=EPSILON)
        wide, narrow = self.heads * self.values, self.heads * self.keys
        u, v, q, k = functional.silu(normed @ self.uvqk).split([wide, wide, narrow, narrow], dim=1)
        parts = zip(buckets, *by_length(groups, q, k, v), strict=True)
        attended = [self.attend(*each) for each in parts]
        seen = torch.cat(attended) if attended else v + self.idle()
        gated = u * functional.layer_norm(seen, seen.shape[1:], eps=EPSILON)
        return self.out(functional.dropout(gated, self.dropout, self.training)) + x

    def idle(self) -> torch.Tensor:
        """A zero that depends on parameters no position has used: DDP waits for the gradients of all parameters."""
        used = [self.by_place, *([] if self.by_time is None else [self.by_time])]
        return 0 * torch.stack([each.sum() for each in used]).sum()

    def attend(self, bucket: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention output for samples of one length (G n, H columns). q, k, v: (G, n, H columns)."""
        samples, length = q.shape[:2]
        queries, keys, values = (each.view(samples, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
        places = torch.arange(length, device=q.device)
        ahead = places[:, None] - places[None, :]
        bias = self.by_place.index_select(0, ahead.clamp(min=0).view(-1)).view(1, 1, length, length)
        if bucket is not None and self.by_time is not None:
            by_time = self.by_time.index_select(0, bucket.view(-1))
            bias = bias + by_time.view(samples, 1, length, length)
        scores = functional.silu(queries @ keys.transpose(2, 3) + bias) / self.positions
        seen = (scores * (ahead >= 0)) @ values
        return seen.transpose(1, 2).reshape(samples * length, -1)
