"""The rank that has least memory left under a plan, and what a full batch takes there beyond a mean one."""

from dataclasses import replace

import numpy as np

from recsmith._types import noun
from recsmith.problems import Footprint, Problem
from recsmith.problems.footprint import memory_parts

OF_BATCH = ("ids and outputs", "sorting")


@noun
class FullestRank:
    """Bytes of the fullest rank, and what it could hold.

    batch_bytes: of ids, outputs and temporaries. over_mean_bytes: how much of these ids and outputs of tables that are
    split by rows take in a full batch beyond a mean one; 0 in TorchRec's accounting.
    """

    rank: int
    bytes: int
    capacity: int
    batch_bytes: int
    over_mean_bytes: int


def fullest_rank(problem: Problem, footprint: Footprint) -> FullestRank:
    """The fullest rank of placed pieces; the lowest of several."""
    full = memory_parts(problem, footprint)
    mean = memory_parts(replace(problem, modes=replace(problem.modes, most_ids=problem.modes.ids)), footprint)
    sizes = np.sum(list(full.values()), axis=0)
    rank = int((sizes / problem.capacity).argmax())
    batch, usual = (sum(int(parts[name][rank]) for name in OF_BATCH if name in parts) for parts in (full, mean))
    return FullestRank(
        rank=rank, bytes=int(sizes[rank]), capacity=int(problem.capacity[rank]), batch_bytes=batch,
        over_mean_bytes=batch - usual,
    )  # fmt: skip
