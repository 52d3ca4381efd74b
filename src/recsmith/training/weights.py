"""Weights at the start: drawn from the seed by table and row, so that no plan and no number of ranks changes them."""

import hashlib
from collections.abc import Collection

import torch
from torch import nn

from recsmith.jobs.sharded_model import local_shards

BLOCK = 4096  # rows drawn at once: few megabytes at any width, and few blocks that a shard uses in part


def draw_tables(sharded: nn.Module, sizes: dict[str, tuple[int, int]], seed: int) -> None:
    """Draw every table's weights, uniform within 1 / sqrt(rows) of zero as torchrec's models have them.

    sizes: (rows, columns) of each table.
    """
    with torch.no_grad():
        for table, corner, tensor in local_shards(sharded):
            if table in sizes:
                _fill(tensor, table, corner, sizes[table], seed)


def _fill(tensor: torch.Tensor, table: str, corner: tuple[int, int], size: tuple[int, int], seed: int) -> None:
    """A shard whose first weight is the table's at `corner`, block after block of whole rows."""
    first, left = corner
    bound = size[0] ** -0.5
    for block in range(first // BLOCK, -(-(first + tensor.shape[0]) // BLOCK)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, size[0])
        drawn = torch.rand(end - begin, size[1], generator=_generator(seed, table, block)).mul_(2 * bound).sub_(bound)
        top, bottom = max(begin, first), min(end, first + tensor.shape[0])
        tensor[top - first : bottom - first].copy_(drawn[top - begin : bottom - begin, left : left + tensor.shape[1]])


def _generator(seed: int, table: str, block: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{block}/{table}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def table_sizes(configs: Collection[object]) -> dict[str, tuple[int, int]]:
    """(rows, columns) of each table of some TorchRec configs."""
    return {config.name: (config.num_embeddings, config.embedding_dim) for config in configs}  # type: ignore[attr-defined]
