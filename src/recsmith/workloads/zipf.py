"""The Zipf law of a table: how many rows a batch reads, and how often, by an exponent.

The i-th most read of `rows` rows is read in proportion to i ** -zipf.

Reads of rank i are taken as Poisson of mean lookups * p_i, p_i = i ** -zipf / (1 + 2 ** -zipf + ... + rows ** -zipf).
For zipf 0 to 3, unique rows lie within 1e-4 of the sum over every rank (up to 10^6 of them), hot shares within 1e-7,
bins within 1e-3 of all rows that are read (tests/workloads/test_reuse.py).

Arguments are arrays (N,), or broadcast to one. Legend: N elements; J nodes; 17 bins by reads of a row in a batch.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from recsmith._types import Floats
from recsmith.workloads.access import NUM_REUSE_BINS, STEEPEST_ZIPF
from recsmith.workloads.rank_sums import (
    LOG_HEAD,
    between,
    harmonic,
    head,
    on_columns,
    on_distinct,
    power_integral,
    ranks,
    tail,
)

HALVINGS = 40  # of the interval of a fitted exponent, which is 1e-11 wide at the end
EDGES = 2 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of all bins but the last: 1, 2, 4 ... 32768
UNLIKELY = 30.0  # chances below e ** -30 count as none
GRID_POINTS = 1024  # of the chance of a Poisson number; with it, bins are within the 1e-3 that is said above
TINY, FLAT = 1e-300, 1e-12  # in place of no lookups, and of exponents of 0, where a logarithm or a quotient needs more


def zipf_unique_rows(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """The expected number of different rows that so many lookups read (N,); at most rows, and at most lookups."""
    return on_distinct(_unique_rows, zipf, rows, lookups)


def zipf_hot_share(zipf: Floats, rows: Floats, hottest: Floats) -> Floats:
    """The share (0..1) of all reads that goes to the `hottest` most read rows (N,); `hottest` may be fractional."""
    return on_columns(_hot_share, zipf, rows, hottest)


def zipf_reuse_bins(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """The expected numbers of rows that are read once, twice, 3 to 4 times ... over 32768 times (N, 17).

    The bins are NeuroShard's: (0,1], (1,2], (2,4] ... (16384,32768], >32768. They sum to zipf_unique_rows.
    """
    return on_distinct(_reuse_bins, zipf, rows, lookups)


def reads_per_bin(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """The expected numbers of reads of the rows in each bin of zipf_reuse_bins (N, 17); they sum to lookups."""
    return on_distinct(_reads_per_bin, zipf, rows, lookups)


def fit_zipf(rows: Floats, lookups: Floats, unique: Floats) -> Floats:
    """The exponent (N,), 0 to 10, at which zipf_unique_rows is `unique`; the nearer end where no exponent gives it."""
    return on_distinct(_fit, rows, lookups, unique)


# --- rows read at all ---------------------------------------------------------------------------------------------


def _unique_rows(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    return np.minimum(_read_once(zipf, lookups, *ranks(rows)), np.minimum(rows, lookups))


def _read_once(zipf: Floats, lookups: Floats, log_rank: Floats, weight: Floats) -> Floats:
    """Sum over ranks of 1 - exp(-mean reads), the chance of being read at all."""
    popularity = np.exp(-zipf[:, None] * log_rank)  # (N, HEAD + J), rank 1 is 1
    top = lookups / (weight * popularity).sum(axis=1)
    return (weight * -np.expm1(-top[:, None] * popularity)).sum(axis=1)


def _fit(rows: Floats, lookups: Floats, unique: Floats) -> Floats:
    """Bisection: unique rows fall as the exponent rises."""
    nodes = ranks(rows)
    low, high = np.zeros(rows.shape), np.full(rows.shape, STEEPEST_ZIPF)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_flat = _read_once(middle, lookups, *nodes) > unique
        low, high = np.where(too_flat, middle, low), np.where(too_flat, high, middle)
    return np.where(high == STEEPEST_ZIPF, STEEPEST_ZIPF, low)


def _hot_share(zipf: Floats, rows: Floats, hottest: Floats) -> Floats:
    part, whole = harmonic(zipf, np.stack([np.clip(hottest, 0, rows), rows]))
    return part / whole


# --- rows read often ----------------------------------------------------------------------------------------------


def _reuse_bins(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    above = [_read_often(zipf, rows, lookups, edge + 1, 0) for edge in EDGES.tolist()]
    return _steps([_unique_rows(zipf, rows, lookups), *above])


def _reads_per_bin(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """Of a Poisson number, the part of the mean that lies above m = mean * chance of at least m."""
    return _steps([lookups, *(_read_often(zipf, rows, lookups, edge, 1) for edge in EDGES.tolist())])


def _steps(above: Sequence[Floats]) -> Floats:
    """What lies in each bin (N, 17), from what lies above the lower end of each bin."""
    falling = np.minimum.accumulate(np.stack([*above, np.zeros_like(above[0])], axis=1), axis=1)
    return falling[:, :-1] - falling[:, 1:]


def _read_often(zipf: Floats, rows: Floats, lookups: Floats, least: int, power: int) -> Floats:
    """Sum over ranks of (mean reads) ** power * chance of at least `least` reads, (N,).

    Beyond the head: ranks that are certain in closed form, then nodes where the chance falls from 1 to 0.
    """
    grid, log_chance = _chance_of(least)
    top = np.log(np.maximum(lookups, TINY) / harmonic(zipf, rows))  # log mean reads of rank 1

    def sum_over(log_rank: Floats, weight: Floats) -> Floats:
        log_mean = top[:, None] - zipf[:, None] * log_rank
        log_term = power * log_mean + np.interp(log_mean, grid, log_chance, left=-np.inf)
        return (weight * np.exp(log_term)).sum(axis=1)

    first, last = tail(rows)
    falls, ends = (np.clip((top - at) / np.maximum(zipf, FLAT), first, last) for at in (grid[-1], grid[0]))
    certain = np.exp(power * top) * power_integral(power * zipf, np.exp(first), np.exp(falls))
    return sum_over(LOG_HEAD, head(rows)) + certain + sum_over(*between(falls, ends))


@cache
def _chance_of(least: int) -> tuple[Floats, Floats]:
    """Log chance that a Poisson number is at least `least` (1 or more), on a grid of log means.

    The chance is the integral up to the mean of the Gamma density of that shape. The grid reaches, by Chernoff's bound
    exp(-least * (r - 1 - log r)) at r = mean / least, from a chance of e ** -30 to one that lacks as little.
    """
    reach = math.sqrt(2 * UNLIKELY / least)
    grid = math.log(least) + np.linspace(-reach - reach**2 / 2, math.log1p(reach + reach**2), GRID_POINTS)
    density = np.exp(least * grid - np.exp(grid) - math.lgamma(least))
    chance = density[0] / least + (grid[1] - grid[0]) * (np.cumsum(density) - (density + density[0]) / 2)
    return grid, np.log(chance / chance[-1])
