"""Weights at the start: drawn from the seed by table and row, so that no plan and no number of ranks changes them."""

import hashlib

import torch

from recsmith.jobs.sharded_model import table_of
from recsmith.training.stores.protocol import RowStore
from recsmith.training.tables.protocol import InitialWeights

BLOCK = 4096  # rows drawn at once: few megabytes at any width, and few blocks that a shard uses in part


def draw_tables(rows: RowStore, initial: dict[str, InitialWeights], seed: int) -> None:
    """Draw the weights of every table that a store holds shards of."""
    with torch.no_grad():
        for shard in rows.shards():
            table = table_of(shard.parameter)
            if table in initial:
                _fill(shard.tensor, table, shard.corner, initial[table], seed)


def _fill(tensor: torch.Tensor, table: str, corner: tuple[int, ...], start: InitialWeights, seed: int) -> None:
    """A shard whose first weight is the table's at `corner`, block after block of whole rows."""
    first, left = corner
    for block in range(first // BLOCK, -(-(first + tensor.shape[0]) // BLOCK)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, start.rows)
        drawn = torch.rand(end - begin, start.columns, generator=_generator(seed, table, block))
        drawn.mul_(2 * start.reach).sub_(start.reach).add_(start.center)
        top, bottom = max(begin, first), min(end, first + tensor.shape[0])
        tensor[top - first : bottom - first].copy_(drawn[top - begin : bottom - begin, left : left + tensor.shape[1]])


def _generator(seed: int, table: str, block: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{block}/{table}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
