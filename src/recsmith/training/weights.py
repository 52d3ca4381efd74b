"""Weights at the start: drawn from the seed by table and row, so that no plan and no number of ranks changes them."""

import hashlib
from typing import NamedTuple

import torch
from torch import nn
from torchrec.modules.embedding_configs import BaseEmbeddingConfig

from recsmith.embeddings import Part
from recsmith.jobs.sharded_model import local_shards

BLOCK = 4096  # rows drawn at once: few megabytes at any width, and few blocks that a shard uses in part


class Drawn(NamedTuple):
    """A table whose weights are drawn uniformly within `reach` of `center`."""

    rows: int
    columns: int
    center: float
    reach: float


def draw_tables(sharded: nn.Module, sizes: dict[str, Drawn], seed: int) -> None:
    """Draw the weights of every table."""
    with torch.no_grad():
        for table, corner, tensor in local_shards(sharded):
            if table in sizes:
                _fill(tensor, table, corner, sizes[table], seed)


def _fill(tensor: torch.Tensor, table: str, corner: tuple[int, int], size: Drawn, seed: int) -> None:
    """A shard whose first weight is the table's at `corner`, block after block of whole rows."""
    first, left = corner
    for block in range(first // BLOCK, -(-(first + tensor.shape[0]) // BLOCK)):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, size.rows)
        drawn = torch.rand(end - begin, size.columns, generator=_generator(seed, table, block))
        drawn.mul_(2 * size.reach).sub_(size.reach).add_(size.center)
        top, bottom = max(begin, first), min(end, first + tensor.shape[0])
        tensor[top - first : bottom - first].copy_(drawn[top - begin : bottom - begin, left : left + tensor.shape[1]])


def _generator(seed: int, table: str, block: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{block}/{table}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def drawn(config: BaseEmbeddingConfig, part: Part | None) -> Drawn:
    """How a table's weights start: within 1 / sqrt(rows) of zero as torchrec's models have it, or as its part says."""
    reach = None if part is None else part.reach
    reach = config.num_embeddings**-0.5 if reach is None else reach
    return Drawn(config.num_embeddings, config.embedding_dim, part.center if part else 0.0, reach)
