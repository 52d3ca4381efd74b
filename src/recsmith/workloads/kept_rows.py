"""How many lookups a cache serves that keeps the rows that were read most, where these are chosen by counting.

A row is kept for what it was read in the lookups that were counted, and serves later ones by its chance: rows that
were read often by luck serve less than their counts say, and rows that nobody read are in no count.

Reads of a row of chance p in n lookups are taken as Poisson of mean n p. Of rows that were read equally often those
that were read last stay, by the approximation of Che et al. (reuse.py).

Legend: B blocks of rows that are read equally often; P points of a curve.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.elementary import exp, expm1, log
from recsmith.workloads.zipf import chance_of

TIES = 4  # reads up to which rows of equal counts are told apart by when they were read; few have more
RUNGS = 16  # of how far back rows of equal counts were read
SELDOM = 30.0  # reads of the least read row after which all were read


@dataclass(frozen=True)
class KeptRows:
    """The share (P,) of later lookups that so many slots (P,) serve; both rise from 0.

    chosen: slots below which rows that come in are read less than those that stay, and make no others leave for good.
    """

    slots: Floats
    share: Floats
    chosen: float

    def of(self, slots: Floats) -> Floats:
        """The share (N,) of lookups that caches of so many rows (N,) serve."""
        return np.interp(slots, self.slots, self.share)


def kept_rows(rows: Floats, chance: Floats, counted: float, since: float | None = None) -> KeptRows:
    """What a cache serves whose rows are chosen by so many counted lookups.

    rows, chance: of each block, how many rows it has, and the chance of each to be the one that a lookup reads (B,).
    since: lookups after these, whose mean is told; 0 while they are counted; None for a cache that is long full.
    """
    mean = log(np.maximum(counted * chance, 1e-300))
    slots, share, chosen = [0.0], [0.0], np.zeros(len(rows))
    for least in reversed(_numbers(counted * float(chance.max()))):
        often = _at_least(least, mean)
        if since != 0 and least <= TIES:
            _ties(slots, share, rows * (often - chosen), chance, None)
        slots, share = [*slots, float((rows * often).sum())], [*share, float((rows * chance * often).sum())]
        chosen = often
    read = slots[-2] if since == 0 else slots[-1]  # while they are counted, rows that come in were read once as well
    if since != 0:
        _ties(slots, share, rows * (1 - chosen), chance, since)
    return KeptRows(np.maximum.accumulate(slots), np.clip(np.maximum.accumulate(share), 0.0, 1.0), read)


def _numbers(most: float) -> list[int]:
    """Numbers of reads that rows are told apart by: every one of the first, and then by equal factors."""
    numbers, number = list(range(1, TIES + 2)), TIES + 1
    while number < 2 * most:
        number = -(-number * 5 // 4)
        numbers.append(number)
    return numbers


def _at_least(least: int, log_mean: Floats) -> Floats:
    """The chance (B,) of so many reads."""
    return exp(np.interp(log_mean, *chance_of(least), left=-np.inf))


def _ties(slots: list[float], share: list[float], rows: Floats, chance: Floats, since: float | None) -> None:
    """Add points of rows that were read equally often, of which those that were read last stay.

    since: lookups from which on they could come into the cache; None: they are all there by now.
    """
    base, before = slots[-1], share[-1]
    last = SELDOM / float(chance[chance > 0].min())
    for back in exp(np.linspace(0.0, float(log(last if since is None else min(since, last))), RUNGS)).tolist():
        there = -expm1(-chance * back)
        served = there if since is None else _while_filling(chance, back, since)
        slots.append(base + float((rows * there).sum()))
        share.append(before + float((rows * chance * served).sum()))


def _while_filling(chance: Floats, back: float, since: float) -> Floats:
    """The mean chance (B,) over `since` lookups that a row was read before, at most `back` lookups ago."""
    once = np.maximum(chance * since, 1e-300)
    return 1 + expm1(-chance * back) / once - exp(-chance * back) * (1 - back / since)
