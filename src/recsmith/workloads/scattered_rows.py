"""Scatters the rows of a table, so that adjacent rows, above all the hot ones in front, are far apart.

TorchRec splits rows into blocks only in their order. A table whose ids are scattered before they reach it is therefore
split as if its rows were scattered. Row i moves to i * step modulo the rows. The step is near the golden ratio of the
rows and has no divisor in common with them: each row has its own place, and the first rows are spread over any number
of blocks about as evenly as possible.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np

from recsmith._types import Ints
from recsmith.workloads.access import HotRows
from recsmith.workloads.row_blocks import blocks_of, law_of
from recsmith.workloads.workload import Table

GOLDEN = (math.sqrt(5) - 1) / 2  # step as a share of all rows; its multiples fill a table evenly
MOST_ROWS = 2**31  # most rows of a scattered table: products of a row and the step are below 2 ** 62
LONG = 64  # rows: a longer range of rows is assumed to be spread evenly


@cache
def scattering_step(rows: int) -> int:
    """The distance to which two adjacent rows are scattered."""
    return next(step for step in range(max(1, round(rows * GOLDEN)), 0, -1) if math.gcd(step, rows) == 1)


def scatter(ids: Ints, rows: int) -> Ints:
    """The places to which rows (n,) are scattered; each row has its own."""
    return ids * scattering_step(rows) % rows


def scattered_blocks(table: Table, assumed: HotRows | None = None) -> tuple[float, ...]:
    """The shares of lookups of equal blocks after scattering the table's rows, in the form of `block_lookups`.

    Reads of single rows follow from the Zipf law or the reuse bins, if there are any: after scattering, the original
    places no longer matter. assumed: where hot rows are in tables that do not say.
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
