"""Histories of different lengths without padding: the positions of all samples are stored one after the other.

Samples of one length are adjacent, so that each attention product multiplies matrices of the samples' own size.

B samples, T positions of all samples, G samples of one length, n positions of each, D columns
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.errors import UsageError
from recsmith.training.tables.features import Features
from recsmith.training.tables.protocol import TableModule

Part = tuple[torch.Tensor, torch.Tensor]  # values (n, ...), lengths (B,)


class SameLength(NamedTuple):
    """Samples of one length: the index of their first position, the number of samples, and the positions of each."""

    start: int
    samples: int
    length: int

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The values (T, ...) of these samples (G, n, ...), as a view."""
        rows = values[self.start : self.start + self.samples * self.length]
        return rows.view(self.samples, self.length, *values.shape[1:])


def by_length(groups: Sequence[SameLength], *values: torch.Tensor) -> list[list[torch.Tensor]]:
    """Each of the values (T, ...) for each group (G, n, ...); gradients are concatenated once for all groups."""
    sizes = [group.samples * group.length for group in groups]
    return [
        [part.view(group.samples, group.length, *part.shape[1:]) for group, part in zip(groups, parts, strict=True)]
        for parts in (each.split(sizes) for each in values)
    ]


class Layout(NamedTuple):
    """The order of positions: samples from short to long, those of equal length in their original order.

    groups: samples of each length; samples without positions are in none. order: original index of each position (T,),
    when the parts of all samples are concatenated. place: index of each position in its sample (T,). sample: sample of
    each position (T,). last: the last position of each sample that has one. samples: those samples.
    """

    groups: list[SameLength]
    order: torch.Tensor
    place: torch.Tensor
    sample: torch.Tensor
    last: torch.Tensor
    samples: torch.Tensor

    def laid(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The values of concatenated parts in this layout (T, ...)."""
        return torch.cat(list(parts)).index_select(0, self.order)


def layout(lengths: Sequence[torch.Tensor]) -> Layout:
    """The layout of samples that consist of parts. lengths: length of each part (B,)."""
    each = torch.stack([part.long() for part in lengths])  # (parts, B)
    total = each.sum(0)
    samples = torch.argsort(total, stable=True)
    ends = torch.empty_like(total)
    ends[samples] = total[samples].cumsum(0)
    within = each.cumsum(0) - each + (ends - total)  # index at which each part of a sample begins
    flat = each.reshape(-1)
    starts = flat.cumsum(0) - flat
    positions = torch.arange(int(flat.sum()), device=flat.device)
    there = positions + torch.repeat_interleave(within.reshape(-1) - starts, flat)
    order = torch.empty_like(positions)
    order[there] = positions
    sample = torch.repeat_interleave(samples, total[samples])
    place = positions - (ends - total)[sample]
    present = samples[total[samples] > 0]
    groups: list[SameLength] = []
    found, counts = torch.unique_consecutive(total[present], return_counts=True)
    begin = 0
    for length, count in zip(found.tolist(), counts.tolist(), strict=True):
        groups.append(SameLength(begin, count, length))
        begin += length * count
    return Layout(groups, order, place, sample, ends[present] - 1, present)


def newest(part: Part, longest: int) -> Part:
    """The last `longest` values of each sample."""
    values, lengths = part
    kept = lengths.clamp(max=longest)
    if len(lengths) == 0 or int((lengths - kept).max()) == 0:
        return part
    ends = torch.repeat_interleave(lengths.long().cumsum(0), lengths.long())
    return values[torch.arange(len(values), device=values.device) >= ends - longest], kept


def added(rows: Mapping[str, Any], names: Sequence[str]) -> Part:
    """The sum of the vectors of several features of the same events.

    Raises:
        UsageError: the features have different numbers of events.
    """
    first = rows[names[0]]
    values, lengths = first.values(), first.lengths()
    for name in names[1:]:
        check_alike(names[0], lengths, name, rows[name].lengths())
        values = values + rows[name].values()
    return values, lengths


def check_alike(name: str, lengths: torch.Tensor, other: str, others: torch.Tensor) -> None:
    """UsageError if two features of the same events have different numbers of ids in a sample."""
    if not torch.equal(lengths, others):
        at = int((lengths != others).nonzero()[0])
        raise UsageError(
            f"a sample has {int(lengths[at])} events of feature '{name}' and {int(others[at])} of '{other}'; a history "
            "has one of each for every event"
        )


def check_single(name: str, lengths: torch.Tensor) -> None:
    """UsageError if a sample has more than one id of a feature that allows only one."""
    if len(lengths) and int(lengths.max()) > 1:
        raise UsageError(f"a sample has {int(lengths.max())} ids of feature '{name}', and there is one of it; give one")


def products(users: torch.Tensor, target: Part, name: str) -> torch.Tensor:
    """Logits of the targets of each sample (B, K): products of their rows with the user's vector; 0 without a target.

    name: name of the targets' feature.

    Raises:
        UsageError: two samples have different numbers of targets.
    """
    rows, lengths = target
    there = lengths.nonzero()[:, 0]
    if not len(there):
        return (users * 0).sum(1, keepdim=True)
    count, fewest = int(lengths.max()), int(lengths[there].min())
    if fewest < count:
        raise UsageError(
            f"a sample has {fewest} ids of feature '{name}' and another {count}; give all samples as many candidates"
        )
    return (users[:, None] * spread(rows.view(len(there), count, -1), there, len(lengths))).sum(2)


def spread(rows: torch.Tensor, samples: torch.Tensor, count: int) -> torch.Tensor:
    """The rows of some samples, placed among all samples (B, ...); zero for all other samples."""
    return rows.new_zeros(count, *rows.shape[1:]).index_copy(0, samples, rows)


class CarriedNumbers(nn.Module, TableModule):
    """Numeric features that are read without a table, such as times: they are not sent between ranks."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.carried = tuple(names)

    def forward(self, features: Any) -> dict[str, Part]:
        """(values, lengths) of each feature."""
        if not self.carried:
            return {}
        found = features.to_dict()
        return {name: (found[name].values(), found[name].lengths()) for name in self.carried}

    def features(self) -> Features:
        """The numeric features."""
        return Features(self.carried)

    def stored(self) -> list[BaseEmbeddingConfig]:
        """No tables."""
        return []

    def vectors(self, name: str) -> torch.Tensor | None:
        """None, because there are no tables."""
        return None
