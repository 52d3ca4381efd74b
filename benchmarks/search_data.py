"""Data of search.py whose needed widths are planted, and the model that can learn them.

Tables come in pairs. The logit is the sum over pairs of the dot product of two hidden vectors of as many numbers as the
pair needs, so a pair of tables in fewer columns cannot tell the logit, and one in more has nothing to put there.

B samples, P pairs
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.source import MemorySource


@dataclass(frozen=True)
class Truth:
    """What is planted. needed: numbers of the hidden vectors of each pair."""

    needed: tuple[int, ...]
    rows: int
    signal: float
    seed: int


def names(pair: int) -> tuple[str, str]:
    return f"t{2 * pair:02}", f"t{2 * pair + 1:02}"


class Planted(MemorySource):
    """Samples `first` to first + samples of the stream of a seed.

    needed: pairs by the numbers that they need, such as {4: 10, 8: 10, 16: 10}.
    """

    def __init__(
        self, *, samples: int, first: int = 0, needed: dict[str, int], rows: int = 50, signal: float = 4.0,
        seed: int = 0,
    ) -> None:  # fmt: skip
        widths = tuple(int(width) for width, count in needed.items() for _ in range(count))
        schema, batch = planted(Truth(widths, rows, signal, seed), samples, first)
        super().__init__(schema, batch)


@lru_cache(maxsize=2)
def planted(truth: Truth, samples: int, first: int) -> tuple[DataSchema, Batch]:
    drawn = np.random.Generator(np.random.Philox(truth.seed))
    hidden = [drawn.normal(size=(2, truth.rows, width)) / width**0.25 for width in truth.needed]
    later = np.random.Generator(np.random.Philox(key=(truth.seed, first + 1)))
    ids = later.integers(0, truth.rows, (len(truth.needed), 2, samples))
    logits = np.zeros(samples)
    for (left, right), (a, b) in zip(hidden, ids, strict=True):
        logits += (left[a] * right[b]).sum(axis=1)
    logits *= truth.signal / len(truth.needed) ** 0.5
    labels = (later.random(samples) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    ones = np.ones(samples, np.int32)
    batch = Batch(
        dense=np.zeros((samples, 0), np.float32),
        ids={name: JaggedIds(values=ids[pair, side], lengths=ones)
             for pair in range(len(truth.needed)) for side, name in enumerate(names(pair))},
        labels=labels[:, None],
        label_names=("label",),
        sample_ids=first + np.arange(samples),
    )  # fmt: skip
    features = tuple(
        DataFeature(name=name, num_embeddings=truth.rows, pooling_factor=1.0, single=True) for name in batch.ids
    )
    return DataSchema(features=features, dense=(), labels=("label",)), batch


class Pairs(nn.Module):
    """Logits: dot products of the vectors of each pair of tables, weighed and added up."""

    def __init__(self, tables: Any) -> None:
        super().__init__()
        self.tables = tables
        self.weigh = nn.Linear(len(tables.embedding_bag_configs()) // 2, 1)
        nn.init.ones_(self.weigh.weight)

    def forward(self, _: torch.Tensor, features: Any) -> torch.Tensor:
        """(B, 1)."""
        pooled = self.tables(features)
        values = torch.stack([pooled[name] for name in pooled.keys()], dim=1)  # noqa: SIM118
        return self.weigh((values[:, ::2] * values[:, 1::2]).sum(dim=2))


def pairs(tables: Any, _: int) -> nn.Module:
    """The model of a run: model.name: search_data:pairs."""
    return Pairs(tables)
