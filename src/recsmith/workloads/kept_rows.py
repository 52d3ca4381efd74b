"""The hit rate of a cache that keeps the most read rows, when these are chosen by counting lookups.

A row is kept for its reads among the counted lookups, and serves later lookups in proportion to its chance of being
read. So rows read often by luck serve less than their counts suggest, and rows never read are in no count.

Reads of a row of chance p in n lookups are taken as Poisson with mean n p. Of rows with equal counts, those read last
are kept, by the approximation of Che et al. (reuse.py).

Legend: B blocks of rows that are read equally often; P points of a curve.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.elementary import exp, expm1, log
from recsmith.workloads.zipf import chance_of

TIES = 4  # rows read at most this often are ranked by when they were last read; few rows are read more often
RUNGS = 16  # points of the curve for rows of equal counts, by how long ago they were last read
SELDOM = 30.0  # mean reads of the least read row after which all rows count as read


@dataclass(frozen=True)
class KeptRows:
    """The share (P,) of later lookups that a cache of some slots (P,) serves; both rise from 0.

    chosen: number of slots up to which the kept rows were read more often than rows that are newly fetched, which
        therefore do not evict them for good.
    """

    slots: Floats
    share: Floats
    chosen: float

    def of(self, slots: Floats) -> Floats:
        """The share (N,) of lookups that caches with these numbers of rows (N,) serve."""
        return np.interp(slots, self.slots, self.share)


def kept_rows(rows: Floats, chance: Floats, counted: float, since: float | None = None) -> KeptRows:
    """The hit rate, by cache size, of a cache whose rows are chosen by `counted` lookups.

    rows, chance: number of rows in each block, and the chance of each row to be read by a lookup (B,).
    since: number of lookups after the counted ones over which the hit rate is averaged; 0 for the hit rate while
        counting; None for a cache that has long been full.
    """
    mean = log(np.maximum(counted * chance, 1e-300))
    slots, share, chosen = [0.0], [0.0], np.zeros(len(rows))
    for least in reversed(_numbers(counted * float(chance.max()))):
        often = _at_least(least, mean)
        if since != 0 and least <= TIES:
            _ties(slots, share, rows * (often - chosen), chance, None)
        slots, share = [*slots, float((rows * often).sum())], [*share, float((rows * chance * often).sum())]
        chosen = often
    read = slots[-2] if since == 0 else slots[-1]  # while counting, newly fetched rows were read once as well
    if since != 0:
        _ties(slots, share, rows * (1 - chosen), chance, since)
    return KeptRows(np.maximum.accumulate(slots), np.clip(np.maximum.accumulate(share), 0.0, 1.0), read)


def _numbers(most: float) -> list[int]:
    """Read counts by which rows are ranked: the first ones singly, then in steps of an equal factor."""
    numbers, number = list(range(1, TIES + 2)), TIES + 1
    while number < 2 * most:
        number = -(-number * 5 // 4)
        numbers.append(number)
    return numbers


def _at_least(least: int, log_mean: Floats) -> Floats:
    """The chance (B,) of at least this many reads."""
    return exp(np.interp(log_mean, *chance_of(least), left=-np.inf))


def _ties(slots: list[float], share: list[float], rows: Floats, chance: Floats, since: float | None) -> None:
    """Add points for rows read equally often, of which those read last are kept.

    since: number of lookups since these rows could enter the cache; None if all have entered it by now.
    """
    base, before = slots[-1], share[-1]
    last = SELDOM / float(chance[chance > 0].min())
    for back in exp(np.linspace(0.0, float(log(last if since is None else min(since, last))), RUNGS)).tolist():
        there = -expm1(-chance * back)
        served = there if since is None else _while_filling(chance, back, since)
        slots.append(base + float((rows * there).sum()))
        share.append(before + float((rows * chance * served).sum()))


def _while_filling(chance: Floats, back: float, since: float) -> Floats:
    """The mean chance (B,), over `since` lookups, that a row was read before, at most `back` lookups ago."""
    once = np.maximum(chance * since, 1e-300)
    return 1 + expm1(-chance * back) / once - exp(-chance * back) * (1 - back / since)
