"""Rows of a table scattered to other places, so that rows which lie side by side, hot ones first of all, lie far apart.

TorchRec splits rows in blocks in their order alone. A table whose ids are scattered before they reach it is therefore
split as if its rows were scattered. Row i goes to i * step modulo the rows, where the step is next to the golden part
of the rows and has no divisor in common with them: each row has its own place, and the first ones are spread over any
number of blocks about as evenly as they can be.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np

from recsmith._types import Ints
from recsmith.workloads.access import HotRows
from recsmith.workloads.row_blocks import blocks_of, law_of
from recsmith.workloads.workload import Table

GOLDEN = (math.sqrt(5) - 1) / 2  # of all rows, from one place to the next: its multiples fill a table evenly
MOST_ROWS = 2**31  # of a table whose rows are scattered: products of a row and the step stay below 2 ** 62
LONG = 64  # rows: a longer range of rows is taken to be spread evenly


@cache
def scattering_step(rows: int) -> int:
    """How far apart two rows are scattered that lie side by side."""
    return next(step for step in range(max(1, round(rows * GOLDEN)), 0, -1) if math.gcd(step, rows) == 1)


def scatter(ids: Ints, rows: int) -> Ints:
    """The places of rows (n,), each its own."""
    return ids * scattering_step(rows) % rows


def scattered_blocks(table: Table, assumed: HotRows | None = None) -> tuple[float, ...]:
    """The shares of lookups of equal blocks, as `block_lookups` has them, once the table's rows are scattered.

    How often single rows are read follows from a Zipf law or from reuse bins, where there are some: once they are
    scattered, it no longer matters where they lay. assumed: where hot rows lie in tables that do not say.
    """
    rows, blocks, access = table.num_embeddings, blocks_of(table.num_embeddings), table.access
    if access is not None and (access.zipf is not None or access.reuse_bins is not None):
        table = replace(table, access=replace(access.scattered(), hot_rows="in_front"))
    ends, before = law_of(table, assumed)
    first, length, share = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64), np.diff(before)
    short = np.flatnonzero((length <= LONG) & (length > 0))
    begins = np.repeat(np.cumsum(length[short]) - length[short], length[short])
    row = np.repeat(first[short], length[short]) + np.arange(len(begins)) - begins
    weights = np.repeat(share[short] / length[short], length[short])
    found = np.bincount(scatter(row, rows) * blocks // rows, weights=weights, minlength=blocks)
    return tuple((found + max(0.0, float(before[-1] - share[short].sum())) / blocks).tolist())
