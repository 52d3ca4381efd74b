"""Keep only the largest columns of pooled embeddings in evaluation and serving, as in training.

A model that was trained with the largest columns of each rank's tables has never seen the other columns, which do not
hold what it would have learned. With all of them, its probabilities are several times too high.

B samples; D columns of a group
"""

from typing import Any

import torch
from torch import Tensor, nn
from torchrec import EmbeddingBagCollection, KeyedTensor
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection

from recsmith.training.systems.thresholds.pooled import TYPES, LargestColumns, among_zeros, largest
from recsmith.training.systems.thresholds.sent import kept_of
from recsmith.training.systems.thresholds.settings import KeptColumns


def kept_columns(model: nn.Module) -> KeptColumns | None:
    """The columns that a sharded model keeps of its pooled embeddings; None if all columns are sent."""
    groups: list[tuple[tuple[str, int, int], ...]] = []
    settings: Any = None
    for module in model.modules():
        if isinstance(module, ShardedEmbeddingBagCollection):
            for sharding, sent in zip(module._embedding_shardings, module._output_dists, strict=True):
                exchange = getattr(sent, "_dist", None)
                if isinstance(exchange, LargestColumns):
                    settings = exchange.settings
                    groups += _groups(sharding)
    return settings and KeptColumns(share=settings.pooled, values=settings.values, groups=tuple(groups))


def _groups(sharding: Any) -> list[tuple[tuple[str, int, int], ...]]:
    """(feature, first column, end) of the columns that each rank sends, for one sharding type."""
    pieces = iter(sharding.embedding_shard_metadata())
    made: list[tuple[tuple[str, int, int], ...]] = []
    for features in sharding.embedding_names_per_rank():
        placed = [(name, next(pieces)) for name in features]
        made.append(tuple((name, at.shard_offsets[1], at.shard_offsets[1] + at.shard_sizes[1]) for name, at in placed))
    return [group for group in made if group]


def keep_columns(model: nn.Module, kept: KeptColumns) -> None:
    """Make a model's tables, sharded or not, return the largest columns of each group, and zeros elsewhere."""
    for module in model.modules():
        if isinstance(module, EmbeddingBagCollection | ShardedEmbeddingBagCollection):
            module.register_forward_hook(_hook(kept))


def _hook(kept: KeptColumns) -> Any:
    def thinned(keyed: KeyedTensor) -> KeyedTensor:
        first = dict(zip(keyed.keys(), keyed.offset_per_key(), strict=False))
        values = keyed.values().clone()
        for group in kept.groups:
            if group[0][0] in first:  # the group belongs to this collection
                columns = torch.cat([torch.arange(first[name] + a, first[name] + b) for name, a, b in group])
                columns = columns.to(values.device)
                values[:, columns] = _thin(values[:, columns], kept)
        return KeyedTensor(keyed.keys(), keyed.length_per_key(), values)

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        if isinstance(output, KeyedTensor):
            return thinned(output)
        output.callbacks.append(thinned)  # embeddings of other ranks have not arrived yet
        return output

    return hook


def _thin(rows: Tensor, kept: KeptColumns) -> Tensor:
    """Keep the largest columns of each row, and zero the rest. rows: (B, D)."""
    columns = largest(rows, kept_of(rows.shape[1], kept.share))
    return among_zeros(columns, rows.gather(1, columns).to(TYPES[kept.values]), rows.shape[1], rows.dtype)
