"""The Zipf law of a table: how many rows a batch reads, and how often, for a given exponent.

The i-th most read of `rows` rows is read in proportion to i ** -zipf.

Reads of rank i are taken as Poisson with mean lookups * p_i, p_i = i ** -zipf / (1 + 2 ** -zipf + ... + rows ** -zipf).
For zipf 0 to 3, unique rows are within 1e-4 of the sum over every rank (up to 10^6 of them), hot shares within 1e-7,
bins within 1e-3 of all rows read (tests/workloads/test_reuse.py).

Sums over the rows of a table cost the same for any number of rows. The rank of a row is its place in the order of
reads, from 1. A sum takes the first HEAD ranks one by one, and the rest as an integral over the logarithm of the rank,
on Gauss-Legendre nodes (midpoint rule: the sum of ranks a .. b is the integral from a - 1/2 to b + 1/2).

Arguments are arrays (N,), or broadcast to one. Legend: N elements; J nodes; 17 bins by reads of a row in a batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import exp, expm1, log, log1p, power
from recsmith.workloads.access import NUM_REUSE_BINS, STEEPEST_ZIPF

HALVINGS = 40  # halvings of the interval of a fitted exponent, which is 1e-11 wide at the end
EDGES = 2 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of all bins but the last: 1, 2, 4 ... 32768
UNLIKELY = 30.0  # probabilities below e ** -30 count as 0
GRID_POINTS = 1024  # points of the Poisson probability curve; with them, bins are within the 1e-3 stated above
TINY, FLAT = 1e-300, 1e-12  # replace 0 lookups in logarithms, and exponents of 0 in quotients
HEAD = 32  # ranks summed one by one; later ranks differ little from the next
LOG_HEAD = log(np.arange(1, HEAD + 1))  # logarithms of these ranks
PANELS = 16  # panels of the integral; for 80 million rows, a panel spans a factor 2.5 of rank
# Gauss-Legendre nodes: the upper three of six on -1 .. 1
NODES = np.array([0.2386191860831969, 0.6612093864662645, 0.9324695142031519])
# weights of these nodes in a panel
NODE_WEIGHTS = np.array([0.46791393457269104, 0.3607615730481387, 0.17132449237917027])
EXACT = 8.0  # ranks that a harmonic number adds one by one, before Euler-Maclaurin
ELEMENTS_AT_ONCE = 1024  # elements (N) processed at once: this many times J numbers fit the cache of a core

Law = Callable[[Floats, Floats, Floats], Floats]


def zipf_unique_rows(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """The expected number of different rows that `lookups` lookups read (N,); at most rows, and at most lookups."""
    return on_distinct(_unique_rows, zipf, rows, lookups)


def zipf_hot_share(zipf: Floats, rows: Floats, hottest: Floats) -> Floats:
    """The share (0..1) of all reads of the `hottest` most read rows (N,); `hottest` may be fractional."""
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
    """The exponent (N,) at which zipf_unique_rows is `unique`; limited to 0 .. 10 if no exponent gives it."""
    return on_distinct(_fit, rows, lookups, unique)


def _unique_rows(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    return np.minimum(_read_once(zipf, lookups, *ranks(rows)), np.minimum(rows, lookups))


def _read_once(zipf: Floats, lookups: Floats, log_rank: Floats, weight: Floats) -> Floats:
    """Sum over ranks of 1 - exp(-mean reads), the chance of being read at all."""
    popularity = exp(-zipf[:, None] * log_rank)  # (N, HEAD + J), rank 1 is 1
    top = lookups / (weight * popularity).sum(axis=1)
    return (weight * -expm1(-top[:, None] * popularity)).sum(axis=1)


def _fit(rows: Floats, lookups: Floats, unique: Floats) -> Floats:
    """Fit the exponent by bisection: unique rows fall as the exponent rises."""
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
    return _steps([_unique_rows(zipf, rows, lookups), *_read_often(zipf, rows, lookups, EDGES + 1, 0)])


def _reads_per_bin(zipf: Floats, rows: Floats, lookups: Floats) -> Floats:
    """Reads in each bin (N, 17): the part of a Poisson number's mean above m is mean * chance of at least m."""
    return _steps([lookups, *_read_often(zipf, rows, lookups, EDGES, 1)])


def _steps(above: Sequence[Floats]) -> Floats:
    """Amounts in each bin (N, 17), from the amounts above the lower end of each bin."""
    falling = np.minimum.accumulate(np.stack([*above, np.zeros_like(above[0])], axis=1), axis=1)
    return falling[:, :-1] - falling[:, 1:]


def _read_often(zipf: Floats, rows: Floats, lookups: Floats, leasts: Ints, moment: int) -> Iterator[Floats]:
    """For each of `leasts`: sum over ranks of (mean reads) ** moment * chance of at least this many reads, (N,).

    Beyond the head: ranks whose chance is 1 in closed form, then nodes where the chance falls from 1 to 0.
    """
    top = log(np.maximum(lookups, TINY) / harmonic(zipf, rows))  # log mean reads of rank 1
    (first, last), at_head = tail(rows), head(rows)
    begins, of_top = exp(first), exp(moment * top)

    def sum_over(chances: tuple[Floats, Floats], log_rank: Floats, weight: Floats) -> Floats:
        log_mean = top[:, None] - zipf[:, None] * log_rank
        log_term = moment * log_mean + np.interp(log_mean, *chances, left=-np.inf)
        return (weight * exp(log_term)).sum(axis=1)

    for chances in map(chance_of, leasts.tolist()):
        grid, _ = chances
        falls, ends = (np.clip((top - at) / np.maximum(zipf, FLAT), first, last) for at in (grid[-1], grid[0]))
        certain = of_top * power_integral(moment * zipf, begins, exp(falls))
        yield sum_over(chances, LOG_HEAD, at_head) + certain + sum_over(chances, *between(falls, ends))


@cache
def chance_of(least: int) -> tuple[Floats, Floats]:
    """Log chance that a Poisson number is at least `least` (1 or more), on a grid of log means.

    The chance is the integral, up to the mean, of the Gamma density of shape `least`. By Chernoff's bound exp(-least *
    (r - 1 - log r)) at r = mean / least, the grid spans chances from e ** -30 to 1 - e ** -30.
    """
    reach = math.sqrt(2 * UNLIKELY / least)
    grid = float(log(least)) + np.linspace(-reach - reach**2 / 2, float(log1p(reach + reach**2)), GRID_POINTS)
    density = exp(least * grid - exp(grid) - math.lgamma(least))
    chance = density[0] / least + (grid[1] - grid[0]) * (np.cumsum(density) - (density + density[0]) / 2)
    return grid, log(chance / chance[-1])


# --- sums over ranks of rows -----------------------------------------------------------------------------------------


def on_columns(law: Law, *columns: Floats) -> Floats:
    """The values of a law at the elements of three columns, which are broadcast to one shape (N,)."""
    return _by_chunks(law, _side_by_side(columns))


def on_distinct(law: Law, *columns: Floats) -> Floats:
    """As on_columns, but equal elements are computed only once."""
    table = _side_by_side(columns)
    order = np.lexsort(table)
    table = table[:, order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (table[:, 1:] != table[:, :-1]).any(axis=0)
    values = _by_chunks(law, table[:, new])
    spread = np.empty((len(order), *values.shape[1:]))
    spread[order] = values[np.cumsum(new) - 1]
    return spread


def _side_by_side(columns: tuple[Floats, ...]) -> Floats:
    return np.stack(np.broadcast_arrays(*(np.atleast_1d(column) for column in columns))).astype(np.float64)


def _by_chunks(law: Law, table: Floats) -> Floats:
    starts = range(0, max(1, table.shape[1]), ELEMENTS_AT_ONCE)
    return np.concatenate([law(*table[:, start : start + ELEMENTS_AT_ONCE]) for start in starts])


@cache
def _rule() -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on 0 .. 1, both (J,)."""
    node, weight = np.append(-NODES[::-1], NODES), np.append(NODE_WEIGHTS[::-1], NODE_WEIGHTS)
    nodes = (np.arange(PANELS)[:, None] + (node + 1) / 2) / PANELS
    return nodes.ravel(), np.tile(weight / 2 / PANELS, PANELS)


def between(start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Nodes between two log ranks (N,), and the number of ranks that each node represents: both (N, J)."""
    nodes, weights = _rule()
    width = (end - start)[:, None]
    log_rank = start[:, None] + width * nodes
    return log_rank, width * weights * exp(log_rank)


def head(rows: Floats) -> Floats:
    """The number of rows that each of the first HEAD ranks represents (N, HEAD): 1, or 0 beyond the last row."""
    return np.clip(rows[:, None] - np.arange(HEAD), 0, 1)


def tail(rows: Floats) -> tuple[Floats, Floats]:
    """The lower and upper log rank of the ranks beyond the head, both (N,)."""
    return np.full(rows.shape, float(log(HEAD + 0.5))), log(np.maximum(rows, HEAD) + 0.5)


def ranks(rows: Floats) -> tuple[Floats, Floats]:
    """Log ranks of whole tables, head and nodes, and the number of rows each represents: both (N, HEAD + J)."""
    log_rank, weight = between(*tail(rows))
    first = np.broadcast_to(LOG_HEAD, (len(rows), HEAD))
    return np.concatenate([first, log_rank], axis=1), np.concatenate([head(rows), weight], axis=1)


def harmonic(zipf: Floats, last: Floats) -> Floats:
    """The sum 1 + 2 ** -zipf + ... + last ** -zipf (..., N) by Euler-Maclaurin; continuous and rising in `last`."""
    total = np.zeros(last.shape)
    for rank, log_rank in enumerate(LOG_HEAD[: int(EXACT)]):
        total += exp(-zipf * log_rank) * np.clip(last - rank, 0, 1)
    end = np.maximum(last, EXACT)
    return total + (power_integral(zipf, EXACT, end) + _excess(zipf, end) - _excess(zipf, EXACT))


def power_integral(exponent: Floats, start: Floats | float, end: Floats) -> Floats:
    """The integral of x ** -exponent from start to end."""
    width = log(end / start)
    rise = (1 - exponent) * width
    stretch = np.divide(expm1(rise), rise, out=np.ones_like(rise), where=rise != 0)
    return power(start, 1 - exponent) * width * stretch


def _excess(exponent: Floats, x: Floats | float) -> Floats:
    """The excess of a sum that ends at x over its integral: f / 2 + f' / 12 - f''' / 720 of f = x ** -exponent."""
    return power(x, -exponent) * (
        1 / 2 - exponent / (12 * x) + exponent * (exponent + 1) * (exponent + 2) / (720 * (x * x * x))
    )
