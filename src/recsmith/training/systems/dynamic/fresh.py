"""Initializes rows that are given to another id: new random weights and zero optimizer state, on the rank of the shard.

n rows that get another id, D columns of a shard
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding, BatchedFusedEmbeddingBag

from recsmith._compiled import call_compiled, compiled
from recsmith._random import salt
from recsmith._types import Ints
from recsmith.training.stores.kernels import kernels_in
from recsmith.training.systems.dynamic.id_rows import MODULE
from recsmith.training.tables.protocol import InitialWeights


class RowShard(NamedTuple):
    """A shard of a table on this rank.

    kernel: FBGEMM's module that holds it. number: its index in the kernel. held: its weights and row states in memory.
    """

    kernel: Any
    number: int
    first_row: int
    rows: int
    first_column: int
    columns: int
    held: tuple[torch.Tensor, ...] = ()


def shards_in(module: nn.Module) -> dict[str, list[RowShard]]:
    """The shards in a sharded module, by table."""
    found: dict[str, list[RowShard]] = {}
    kernels: list[Any] = [*kernels_in(module, BatchedFusedEmbeddingBag), *kernels_in(module, BatchedFusedEmbedding)]
    for kernel in kernels:
        for number, table in enumerate(kernel.config.embedding_tables):
            row, column = table.local_metadata.shard_offsets
            held = _held(kernel.emb_module, number, table.local_rows)
            shard = RowShard(kernel.emb_module, number, row, table.local_rows, column, table.local_cols, held)
            found.setdefault(table.name, []).append(shard)
    return found


def drawn(start: InitialWeights, seed: int, table: str, ids: Ints, columns: range) -> torch.Tensor:
    """Initial weights (n, D) for ids; they depend on seed, table and id only, not on the row."""
    unit = np.empty((len(ids), len(columns)), np.float32)
    key = np.array([salt(seed, table), columns.start], np.uint64).view(np.int64)
    call_compiled(compiled(MODULE).drawn, (np.ascontiguousarray(ids), key, unit))
    return torch.from_numpy(unit).mul_(2 * start.reach).sub_(start.reach).add_(start.center)


def draw_anew(
    shards: Mapping[str, list[RowShard]], start: Mapping[str, InitialWeights], seed: int, again: Mapping[str, Any]
) -> None:
    """Initialize rows in the shards of this rank. again: (rows, their new ids), by table."""
    for table, (rows, ids) in again.items():
        for shard in shards.get(table, ()):
            mine = (rows >= shard.first_row) & (rows < shard.first_row + shard.rows)
            columns = range(shard.first_column, shard.first_column + shard.columns)
            if mine.any():
                _write(shard, rows[mine] - shard.first_row, drawn(start[table], seed, table, ids[mine], columns))


def _held(kernel: Any, number: int, rows: int) -> tuple[torch.Tensor, ...]:
    """Weights and row-wise or element-wise states of a kernel's table, to write into; empty for kernels with caches."""
    if hasattr(kernel, "overwrite"):
        return ()
    states = kernel.split_optimizer_states()
    of_rows = [state for state in (states[number] if states else ()) if state.dim() and len(state) == rows]
    return kernel.split_embedding_weights()[number].detach(), *(state.detach() for state in of_rows)


def _write(shard: RowShard, rows: Ints, weights: torch.Tensor) -> None:
    """Write weights (n, D) into rows of a shard, and zeros into their optimizer state."""
    if not shard.held:
        shard.kernel.overwrite(shard.number, rows, weights)
        return
    of_shard, (held, *states) = torch.from_numpy(rows), shard.held
    held.index_copy_(0, of_shard, weights.to(held.dtype))
    for state in states:
        state.index_fill_(0, of_shard, 0.0)
