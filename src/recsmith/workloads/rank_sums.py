"""Sums over the rows of a table in order of their reads, at a cost that does not grow with the number of rows.

The rank of a row is its place in that order, from 1. A sum takes the first HEAD ranks one by one, and the others as an
integral over the logarithm of the rank, on Gauss-Legendre nodes (midpoint rule: the sum of ranks a .. b is the integral
from a - 1/2 to b + 1/2).

Legend: N elements; J nodes.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from recsmith._types import Floats

HEAD = 32  # ranks that are summed one by one; beyond them a rank differs little from the next
LOG_HEAD = np.log(np.arange(1, HEAD + 1))  # of these ranks
PANELS, POINTS = 16, 6  # of the integral, and nodes of each panel; for 80 million rows a panel is a factor 2.5 of rank
EXACT = 8.0  # ranks that a harmonic number adds one by one, before Euler-Maclaurin takes over
CHUNK = 1024  # elements (N) worked on at once: CHUNK * J numbers fit the cache of a core

Law = Callable[[Floats, Floats, Floats], Floats]


def on_columns(law: Law, *columns: Floats) -> Floats:
    """The values of a law at the elements of three columns, which are broadcast to one shape (N,)."""
    return _by_chunks(law, _side_by_side(columns))


def on_distinct(law: Law, *columns: Floats) -> Floats:
    """As on_columns, with equal elements computed once."""
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
    starts = range(0, max(1, table.shape[1]), CHUNK)
    return np.concatenate([law(*table[:, start : start + CHUNK]) for start in starts])


# --- nodes --------------------------------------------------------------------------------------------------------


@cache
def _rule() -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on 0 .. 1, (J,) both."""
    node, weight = np.polynomial.legendre.leggauss(POINTS)
    nodes = (np.arange(PANELS)[:, None] + (node + 1) / 2) / PANELS
    return nodes.ravel(), np.tile(weight / 2 / PANELS, PANELS)


def between(start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Nodes between two log ranks (N,), and how many ranks each node stands for: (N, J) both."""
    nodes, weights = _rule()
    width = (end - start)[:, None]
    log_rank = start[:, None] + width * nodes
    return log_rank, width * weights * np.exp(log_rank)


def head(rows: Floats) -> Floats:
    """How many rows each of the first HEAD ranks stands for (N, HEAD): 1, or 0 beyond the last row of a table."""
    return np.clip(rows[:, None] - np.arange(HEAD), 0, 1)


def tail(rows: Floats) -> tuple[Floats, Floats]:
    """The log ranks between which the ranks beyond the head lie, (N,) both."""
    return np.full(rows.shape, math.log(HEAD + 0.5)), np.log(np.maximum(rows, HEAD) + 0.5)


def ranks(rows: Floats) -> tuple[Floats, Floats]:
    """Log ranks of whole tables, head and nodes, and how many rows each stands for: (N, HEAD + J) both."""
    log_rank, weight = between(*tail(rows))
    first = np.broadcast_to(LOG_HEAD, (len(rows), HEAD))
    return np.concatenate([first, log_rank], axis=1), np.concatenate([head(rows), weight], axis=1)


# --- harmonic numbers ---------------------------------------------------------------------------------------------


def harmonic(zipf: Floats, last: Floats) -> Floats:
    """1 + 2 ** -zipf + ... + last ** -zipf (..., N), by Euler-Maclaurin; continuous and rising between whole ranks."""
    total = np.zeros(last.shape)
    for rank in np.arange(EXACT):
        total += (rank + 1) ** -zipf * np.clip(last - rank, 0, 1)
    end = np.maximum(last, EXACT)
    return total + (power_integral(zipf, EXACT, end) + _excess(zipf, end) - _excess(zipf, EXACT))


def power_integral(power: Floats, start: Floats | float, end: Floats) -> Floats:
    """The integral of x ** -power from start to end."""
    width = np.log(end / start)
    rise = (1 - power) * width
    stretch = np.divide(np.expm1(rise), rise, out=np.ones_like(rise), where=rise != 0)
    return start ** (1 - power) * width * stretch


def _excess(power: Floats, x: Floats | float) -> Floats:
    """What a sum that ends at x has over its integral: f / 2 + f' / 12 - f''' / 720 of f = x ** -power."""
    return x**-power * (1 / 2 - power / (12 * x) + power * (power + 1) * (power + 2) / (720 * x**3))
