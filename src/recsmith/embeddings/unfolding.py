"""The rows of a logical table, whatever it is stored as: for export, and for whoever wants to look at vectors."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection

from recsmith.data import JaggedIds
from recsmith.embeddings.combining import StoredTables
from recsmith.embeddings.parts import physical
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

CHUNK = 65_536  # ids at once: some megabytes at any width


def vectors_of(model: nn.Module, name: str) -> torch.Tensor:
    """The vectors of all ids of a table (num_embeddings, embedding_dim), of a model that is not sharded.

    Raises:
        UsageError: there is no such table.
    """
    for module in model.modules():
        if isinstance(module, StoredTables):
            return unfolded(module, name)
    weights: dict[str, Any] = {}
    for module in model.modules():
        if isinstance(module, EmbeddingBagCollection):
            weights |= dict(module.embedding_bags.items())
        elif isinstance(module, EmbeddingCollection):
            weights |= dict(module.embeddings.items())
    check_name(name, list(weights))
    return weights[name].weight.detach()


def unfolded(tables: StoredTables, name: str) -> torch.Tensor:
    """The vectors of all ids of one of these tables (num_embeddings, embedding_dim).

    Raises:
        UsageError: there is no such table.
    """
    names = [table.config.name for table in tables.stored]
    check_name(name, names)
    table, combine = tables.stored[names.index(name)], tables.combine[names.index(name)]
    bags: Any = tables.tables.embedding_bags
    if table.transform is None:
        return bags[name].weight.detach()
    weights = [bags[physical(name, part.name)].weight.detach() for part in table.transform.parts]
    made: list[torch.Tensor] = []
    for first in range(0, table.transform.num_embeddings, CHUNK):
        ids = np.arange(first, min(first + CHUNK, table.transform.num_embeddings))
        routed = table.transform.route(JaggedIds(values=ids, lengths=np.ones(len(ids), np.int32)))
        vectors = [
            _summed(weights[lookup.part], each) for lookup, each in zip(table.transform.lookups, routed, strict=True)
        ]
        with torch.no_grad():
            made.append(combine(vectors))
    return torch.cat(made)


def check_name(name: str, names: list[str]) -> None:
    """UsageError where a table is not one of these."""
    if name not in names:
        raise UsageError(f"there is no table '{name}'{did_you_mean(name, names)}")


def _summed(weight: torch.Tensor, ids: JaggedIds) -> torch.Tensor:
    """The sum of the rows of each bag (B, columns)."""
    offsets = torch.from_numpy(np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths)
    return torch.nn.functional.embedding_bag(torch.from_numpy(ids.values), weight, offsets, mode="sum")
