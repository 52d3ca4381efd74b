# pyright: basic
"""The ids of a case: drawn on the device that reads them, the same for a case on every device (imports torch).

The i-th most read row of a table is read in proportion to i ** -zipf, as in workloads/zipf.py. Uniform numbers come
from one pool that is kept on the device; each table starts at a position in it. The ranks by reads are then scattered
over the rows.

A table that is one of several row-wise blocks draws ranks over the rows of all blocks, and divides them by the number
of blocks: that many neighbouring ranks become one row of the block.

Legend: T tables, B bags of each, N ids of a table, K ids of the case.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from recsmith.hardware.case import IDS, Case, KeyedRandom
from recsmith.workloads import Table
from recsmith.workloads.access import NUM_REUSE_BINS
from recsmith.workloads.scattered_rows import scattering_step

HEAD = 64  # ranks drawn exactly; beyond them the midpoint rule is off by less than 5e-5 of a rank's chance
POOL_SEED = 0  # seed of the uniform numbers; another one would change all ids of all cases
HARMONIC = 1e-9  # exponents this close to 1 count as 1, for which the integral is a logarithm


class Lookups(NamedTuple):
    """ids (K,) and offsets (T * B + 1,) as FBGEMM takes them; unique rows (T,), and reuse bins (T * 17,)."""

    ids: Tensor
    offsets: Tensor
    unique_rows: tuple[int, ...]
    reuse_bins: tuple[int, ...]


def uniform_pool(size: int, device: torch.device) -> Tensor:
    """Uniform numbers (size,) on a device; a smaller pool is the beginning of a larger one."""
    return torch.from_numpy(KeyedRandom(POOL_SEED, 0, IDS).uniform(size)).to(device)


def draw_lookups(case: Case, pool: Tensor) -> Lookups:
    """The ids of a case, and how often rows repeat. Bags of a table differ by at most one id.

    pool: from uniform_pool, with at least as many numbers as each table has ids.
    """
    starts = KeyedRandom(case.seed, case.number, IDS).uniform(len(case.tables)).tolist()
    bags = torch.arange(case.workload.batch_size + 1, device=pool.device)
    ids, offsets, unique, bins, before = [], [], [], [], 0
    for t, (table, count) in enumerate(zip(case.tables, case.lookups, strict=True)):
        start = int(starts[t] * (len(pool) - count + 1))
        ranks = draw_ranks(pool[start : start + count], table.num_embeddings * case.blocks, _zipf(table))
        if case.blocks > 1:
            ranks = ranks // case.blocks
        ids.append(scatter(ranks, table.num_embeddings))
        offsets.append(before + bags[: -1 if t + 1 < len(case.tables) else None] * count // case.workload.batch_size)
        reads = torch.unique_consecutive(ranks.sort().values, return_counts=True)[1]
        unique.append(len(reads))
        bins += _bins(reads)
        before += count
    return Lookups(torch.cat(ids), torch.cat(offsets), tuple(unique), tuple(bins))


def _zipf(table: Table) -> float:
    return (table.access.zipf if table.access else None) or 0.0


def draw_ranks(uniform: Tensor, rows: int, zipf: float) -> Tensor:
    """Ranks (N,) from 0: the inverse of the Zipf law at uniform numbers, exact up to HEAD and by an integral beyond."""
    if zipf == 0:
        return (uniform * rows).long()
    head = min(rows, HEAD)
    chances = torch.arange(1, head + 1, dtype=torch.float64, device=uniform.device).pow(-zipf).cumsum(0)
    share = float(chances[-1])
    mass = uniform * (share + _integral(zipf, head + 0.5, rows + 0.5))
    ranks = torch.searchsorted(chances, mass, right=True)
    if rows == head:
        return ranks.clamp_(max=rows - 1)
    beyond = _inverse(zipf, head + 0.5, (mass - share).clamp_(min=0)).add_(0.5).long() - 1
    return torch.where(mass < share, ranks, beyond.clamp_(head, rows - 1))


def _integral(power: float, start: float, end: float) -> float:
    """The integral of x ** -power from start to end."""
    width = math.log(end / start)
    rise = (1 - power) * width
    return start ** (1 - power) * width * (math.expm1(rise) / rise if rise else 1.0)


def _inverse(power: float, start: float, area: Tensor) -> Tensor:
    """The upper limit at which the integral of x ** -power from start reaches an area."""
    area = area / start ** (1 - power)
    if abs(1 - power) < HARMONIC:
        return area.exp_().mul_(start)
    return area.mul_(1 - power).log1p_().div_(1 - power).exp_().mul_(start)


def scatter(ranks: Tensor, rows: int) -> Tensor:
    """The rows of ranks (N,): a permutation, so that rows that are read often are not next to each other."""
    return ranks * scattering_step(rows) % rows


def _bins(reads: Tensor) -> list[int]:
    """Number of rows that are read once, twice, 3 to 4 times ... over 32768 times, (17,)."""
    edges = 2 ** torch.arange(NUM_REUSE_BINS - 1, device=reads.device)
    return torch.bincount(torch.bucketize(reads, edges), minlength=NUM_REUSE_BINS).tolist()
