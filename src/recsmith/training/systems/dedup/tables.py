"""Embedding tables that are looked up once for each distinct bag (RecD), in torch.

Zhao et al., "RecD" (MLSys 2023, arXiv 2211.05239). Features that repeat about equally often share a collection. The
batch size of a collection is the largest number of distinct rows of its features. Pooled vectors are then expanded to
samples, so ids, lookups, pooling and communication all shrink alike.

B samples, U distinct rows, F features of a collection, D columns of a table
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor, KeyedTensor
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.streamable import Pipelineable

from recsmith._types import Ints
from recsmith.data import Batch, JaggedIds
from recsmith.data.deduplication import deduplicated, distinct_rows
from recsmith.training.systems.dedup.groups import Deduplication
from recsmith.training.systems.dedup.parts import AHEAD
from recsmith.training.tables.features import Features, keyed_jagged, weights_of
from recsmith.training.tables.plain import plain
from recsmith.training.tables.protocol import TableModule

_COLLECTION = re.compile(r"\.(plain|distinct\.\d+)$")  # a collection of DeduplicatedTables, at the end of its path


class InverseKeyedJaggedTensor(Pipelineable):
    """The distinct bags of some features, and the row of each sample among them.

    distinct: U bags of each feature; a feature with fewer has empty bags at the end. inverse: row of each sample (F,
    B).
    """

    def __init__(self, distinct: KeyedJaggedTensor, inverse: torch.Tensor) -> None:
        self.distinct, self.inverse = distinct, inverse

    @classmethod
    def from_rows(cls, bags: Mapping[str, JaggedIds], inverse: Mapping[str, Ints]) -> "InverseKeyedJaggedTensor":
        """Convert a reader's batch. bags: the distinct bags of each feature. inverse: row of each sample (B,)."""
        most = max(len(each.lengths) for each in bags.values())
        lengths = np.zeros((len(bags), most), np.int32)
        for row, each in zip(lengths, bags.values(), strict=True):
            row[: len(each.lengths)] = each.lengths
        distinct = KeyedJaggedTensor(
            keys=list(bags),
            values=torch.from_numpy(np.concatenate([each.values for each in bags.values()])),
            lengths=torch.from_numpy(lengths.ravel()),
            weights=weights_of(list(bags.values())),
        )
        return cls(distinct, torch.from_numpy(np.stack([inverse[name] for name in bags])))

    @classmethod
    def from_keyed_jagged_tensor(
        cls, features: KeyedJaggedTensor, groups: Sequence[Sequence[str]] | None = None
    ) -> "InverseKeyedJaggedTensor":
        """Find the distinct bags of a batch, on CPU. groups: features that share their rows; None: each has its own."""
        keys = features.keys()
        named = {name: _as_bags(features[name]) for name in keys}
        rows, inverse = dict(named), dict[str, Ints]()
        for group in groups or [(name,) for name in named]:
            first, row = distinct_rows([named[name] for name in group])
            for name in group:
                rows[name], inverse[name] = named[name].take(first), row
        return cls.from_rows(rows, inverse)

    def to_keyed_jagged_tensor(self) -> KeyedJaggedTensor:
        """Expand to one bag for each sample; on CPU."""
        names = self.distinct.keys()
        bags = [_as_bags(self.distinct[name]).take(self.inverse[i].numpy()) for i, name in enumerate(names)]
        return KeyedJaggedTensor(
            keys=names,
            values=torch.from_numpy(np.concatenate([each.values for each in bags])),
            lengths=torch.from_numpy(np.concatenate([each.lengths for each in bags])),
            weights=weights_of(bags),
        )

    def padded(self, rows: int) -> "InverseKeyedJaggedTensor":
        """The same bags with empty bags at the end of each feature, up to this many rows."""
        most, features = self.distinct.stride(), len(self.distinct.keys())
        if most == rows:
            return self
        lengths = nn.functional.pad(self.distinct.lengths().view(features, most), (0, rows - most))
        longer = KeyedJaggedTensor(
            keys=self.distinct.keys(),
            values=self.distinct.values(),
            lengths=lengths.view(-1),
            weights=self.distinct.weights_or_none(),
        )
        return InverseKeyedJaggedTensor(longer, self.inverse)

    def to(self, device: torch.device, non_blocking: bool = False) -> "InverseKeyedJaggedTensor":
        """Copy to a device."""
        return InverseKeyedJaggedTensor(
            self.distinct.to(device, non_blocking=non_blocking), self.inverse.to(device, non_blocking=non_blocking)
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory until a stream has finished using it."""
        self.distinct.record_stream(stream)  # type: ignore[arg-type]
        self.inverse.record_stream(stream)  # type: ignore[arg-type]

    def pin_memory(self) -> "InverseKeyedJaggedTensor":
        """Copy to pinned memory."""
        return InverseKeyedJaggedTensor(self.distinct.pin_memory(), self.inverse.pin_memory())


class DeduplicatedFeatures(Pipelineable):
    """The input of DeduplicatedTables: features that are not deduplicated, and distinct bags for each collection.

    plain: None if all features are deduplicated.
    """

    def __init__(self, plain: KeyedJaggedTensor | None, parts: Sequence[InverseKeyedJaggedTensor]) -> None:
        self.plain, self.parts = plain, tuple(parts)

    def to(self, device: torch.device, non_blocking: bool = False) -> "DeduplicatedFeatures":
        """Copy to a device."""
        plain = None if self.plain is None else self.plain.to(device, non_blocking=non_blocking)
        return DeduplicatedFeatures(plain, [part.to(device, non_blocking) for part in self.parts])

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the memory until a stream has finished using it."""
        for part in (*self.parts, *([self.plain] if self.plain is not None else [])):
            part.record_stream(stream)  # type: ignore[arg-type]

    def pin_memory(self) -> "DeduplicatedFeatures":
        """Copy to pinned memory."""
        plain = None if self.plain is None else self.plain.pin_memory()
        return DeduplicatedFeatures(plain, [part.pin_memory() for part in self.parts])


@dataclass(frozen=True)
class RepeatedFeatures(Features):
    """Features of which some are looked up once for each distinct bag."""

    deduplication: Deduplication = field(default_factory=Deduplication)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of features that share their rows."""
        return self.deduplication.groups

    @property
    def repeats(self) -> Mapping[str, tuple[float, float]]:
        """For each feature, samples per row of its part, and per row of the feature itself."""
        return self.deduplication.factors

    def tensors(self, batch: Batch) -> DeduplicatedFeatures:
        """The tensors of a batch, with the distinct bags of each part. Deduplicates a batch that its reader has not."""
        names = [name for name in self.names if name not in self.deduplication.factors]
        plain = keyed_jagged(names, self.bags(batch)) if names else None
        distinct = batch if batch.inverse else deduplicated(batch, self.groups)
        rows = [{name: distinct.ids[name] for name in part} for part in self.deduplication.parts]
        parts = [InverseKeyedJaggedTensor.from_rows(each, distinct.inverse) for each in rows]
        return DeduplicatedFeatures(plain, parts)


class DeduplicatedTables(nn.Module, TableModule):
    """Embedding tables in several collections; a model sees one EmbeddingBagCollection.

    deduplication: which features are in which collection. Tables without deduplicated features are in the plain one.
    """

    settings_noun = None  # data.deduplicate asks for it
    reads_by_name = True

    def __init__(
        self, configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool = False,
        *, deduplication: Deduplication,
    ) -> None:  # fmt: skip
        super().__init__()
        self.configs, self.deduplication = tuple(configs), deduplication
        known = {name for part in deduplication.parts for name in part}
        rest = [config for config in configs if not known & set(config.feature_names)]
        parts = [[c for c in configs if set(part) & set(c.feature_names)] for part in deduplication.parts]
        self.collected = [*rest, *(config for part in parts for config in part)]
        self.plain = plain(rest, device, is_weighted) if rest else None
        self.distinct = nn.ModuleList(plain(part, device, is_weighted) for part in parts)
        self.looked_up, self.bags = 0, 0  # bags of deduplicated features in training so far: distinct, and all

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """TorchRec's configs of all tables, in the model's order."""
        return list(self.configs)

    def forward(self, features: DeduplicatedFeatures) -> KeyedTensor:
        """Look up pooled vectors (B, D) of each feature."""
        found = {} if self.plain is None else self.plain(features.plain).to_dict()
        for collection, part in zip(self.distinct, equally_long(features.parts), strict=True):
            pooled = collection(part.distinct).to_dict()
            if self.training:
                self.looked_up += part.distinct.stride() * len(part.inverse)
                self.bags += part.inverse.numel()
            found |= {
                name: pooled[name].index_select(0, part.inverse[i]) for i, name in enumerate(part.distinct.keys())
            }
        names = [name for config in self.configs for name in config.feature_names]
        return KeyedTensor(names, [found[name].shape[1] for name in names], torch.cat([found[n] for n in names], dim=1))

    def features(self) -> RepeatedFeatures:
        """All features, some of them as distinct bags."""
        names = tuple(name for config in self.collected for name in config.feature_names)
        return RepeatedFeatures(names, deduplication=self.deduplication)

    def stored(self) -> list[BaseEmbeddingConfig]:
        """The configs of all tables, collection by collection."""
        return list(self.collected)

    def vectors(self, name: str) -> torch.Tensor | None:
        """The weights of a table, or None if it is not here."""
        collections: Any = [*([] if self.plain is None else [self.plain]), *self.distinct]
        found = next((each.embedding_bags for each in collections if name in each.embedding_bags), None)
        return None if found is None else found[name].weight.detach()

    def exported(self, parameter: str) -> str:
        """The name of a parameter in the model whose tables are one collection."""
        owner, bags, table = parameter.rpartition(".embedding_bags.")
        return _COLLECTION.sub("", owner) + bags + table

    def why_not_ahead(self) -> str | None:
        """Why ids cannot be sent ahead of their batch: ranks first agree on numbers of rows."""
        return AHEAD


def equally_long(parts: Sequence[InverseKeyedJaggedTensor]) -> list[InverseKeyedJaggedTensor]:
    """The parts padded to the same number of rows on every rank, as sums over ranks of row-wise tables need."""
    rows = torch.tensor([part.distinct.stride() for part in parts], device=parts[0].inverse.device)
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(rows, dist.ReduceOp.MAX)
    return [part.padded(most) for part, most in zip(parts, rows.tolist(), strict=True)]


def brought_line(model: nn.Module, factors: Mapping[str, tuple[float, float]]) -> str | None:
    """The share of bags of all ranks that was looked up, and the predicted share; None if nothing was counted."""
    found = [each for each in model.modules() if isinstance(each, DeduplicatedTables)]
    counts = torch.tensor([[each.looked_up, each.bags] for each in found] or [[0, 0]]).sum(dim=0)
    dist.all_reduce(counts)
    looked_up, bags = counts.tolist()
    if not bags:
        return None
    predicted = sum(1 / samples for samples, _ in factors.values()) / len(factors)
    share = f"{looked_up / bags:.0%} of the bags of {len(factors)} features were looked up"
    return f"deduplicate: {share}; {predicted:.0%} were predicted"


def _as_bags(feature: object) -> JaggedIds:
    """The bags of a JaggedTensor as NumPy arrays."""
    from torchrec import JaggedTensor

    assert isinstance(feature, JaggedTensor)
    weights = feature.weights_or_none()
    return JaggedIds(
        values=feature.values().numpy().astype(np.int64, copy=False),
        lengths=feature.lengths().numpy().astype(np.int32, copy=False),
        weights=None if weights is None else weights.numpy(),
    )
