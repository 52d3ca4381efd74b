"""How many rows of each table its cache holds, if a run gives one share for all tables: by access profiles.

Each byte is given to the table where it saves most lookups from the disk. The hits of a table grow with its cache along
a curve. The least concave curve above it is climbed greedily, so the result is optimal to within one rung of the
curves.

T tables, R rungs
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from recsmith._types import Floats
from recsmith.problems.cached_lookups import PROFILE, CachedLookups, CachedTable
from recsmith.workloads import Workload

RUNGS = 48  # points of a table's curve, by equal factors from its least number of rows to all of them


def allotted(
    workload: Workload, cached: Sequence[CachedTable], least: Sequence[int], ranks: int, profile: int = PROFILE
) -> list[float]:
    """The share of the rows of each table that its cache holds, within the bytes of one share for all tables.

    Args:
        workload: the workload of the tables.
        cached: the tables, all with that one share.
        least: the least number of rows in each cache; together they may exceed the bytes of the share.
        ranks: the number of ranks whose batches a table serves in a step.
        profile: the number of batches whose reads are counted, for caches that keep the rows that are read most.
    """
    rows = np.array([each.table.num_embeddings for each in cached], dtype=np.float64)
    shares, held = np.array([each.share for each in cached]), np.minimum(np.array(least, dtype=np.float64), rows)
    if any(each.table.access is None for each in cached):  # no access profile: what one more row would gain is unknown
        return np.maximum(shares, held / rows).tolist()
    width = np.array([each.table.embedding_dim for each in cached], dtype=np.float64)
    left = float((shares * rows * width).sum() - (held * width).sum())
    rungs = np.maximum(held, 1.0)[:, None] * (rows / np.maximum(held, 1.0))[:, None] ** np.linspace(0, 1, RUNGS)
    lookups = CachedLookups.of(workload, [each.table for each in cached], ranks)
    static = np.array([each.static for each in cached], dtype=bool)
    hits = lookups.hits(rungs, static, profile=profile) * lookups.lookups[:, None]
    steps = sorted(
        ((gain / (more * width[table]), table, more) for table in range(len(cached))
         for gain, more in _concave(rungs[table], hits[table])), key=lambda step: -step[0],
    )  # fmt: skip
    for _, table, more in steps:
        if left <= 0:
            break
        taken = min(more, left / width[table])
        held[table], left = held[table] + taken, left - taken * width[table]
    return np.minimum(held / rows, 1.0).tolist()


def _concave(rows: Floats, hits: Floats) -> list[tuple[float, float]]:
    """(hits gained, rows added) of each piece of the least concave curve above a given curve, from its first point."""
    hull: list[tuple[float, float]] = []
    for point in zip(rows.tolist(), hits.tolist(), strict=True):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        if not hull or point[0] > hull[-1][0]:
            hull.append(point)
    return [(b[1] - a[1], b[0] - a[0]) for a, b in pairwise(hull)]


def _turns_up(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])
