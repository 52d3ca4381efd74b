"""The rank with the least memory left under a plan, and the extra bytes of a full batch there over a mean batch."""

from dataclasses import replace

import numpy as np

from recsmith._types import noun
from recsmith.problems import Footprint, Problem
from recsmith.problems.footprint import memory_parts

OF_BATCH = ("ids and outputs", "sorting")


@noun
class FullestRank:
    """Bytes used and available on the fullest rank.

    batch_bytes: bytes of ids, outputs and temporaries. over_mean_bytes: the part of these by which a full batch exceeds
    a mean one, for tables that are split by rows; 0 in TorchRec's accounting.
    """

    rank: int
    bytes: int
    capacity: int
    batch_bytes: int
    over_mean_bytes: int


def fullest_rank(problem: Problem, footprint: Footprint) -> FullestRank:
    """The fullest rank of placed pieces, by bytes / capacity; on a tie, the lowest rank."""
    full = memory_parts(problem, footprint)
    mean = memory_parts(replace(problem, modes=replace(problem.modes, most_ids=problem.modes.ids)), footprint)
    sizes = np.sum(list(full.values()), axis=0)
    rank = int((sizes / problem.capacity).argmax())
    batch, usual = (sum(int(parts[name][rank]) for name in OF_BATCH if name in parts) for parts in (full, mean))
    return FullestRank(
        rank=rank, bytes=int(sizes[rank]), capacity=int(problem.capacity[rank]), batch_bytes=batch,
        over_mean_bytes=batch - usual,
    )  # fmt: skip
