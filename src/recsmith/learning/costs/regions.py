"""Where a cost model is right and where it is not: held-out errors by kinds of groups.

A group is of the kind of its heaviest table, the one with most ids times columns: its rows, ids a bag, and columns.

Legend: N groups, P pieces.
"""

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.neural.reach import Region, figures_of
from recsmith.learning.costs.data import Groups

ROWS, POOLING, COLUMNS = (0, 1e4, 1e6, np.inf), (0, 10, 100, np.inf), (0, 33, np.inf)  # edges of the kinds
LEAST_GROUPS = 5  # of a region: fewer say nothing about it


def figures(groups: Groups) -> Floats:
    """The figures (P, 4) of all pieces by which a table is told to be near training data or far from it."""
    return figures_of(groups.rows, groups.ids, groups.bags, groups.dim, groups.unique)


def regions_of(groups: Groups, predicted: Floats) -> tuple[Region, ...]:
    """The regions that groups reach, by predictions (N, 2) of their seconds."""
    off = predicted.sum(axis=1) / groups.total - 1
    return tuple(
        Region(name=name, samples=int(here.sum()), mean=float(np.abs(off[here]).mean()), bias=float(off[here].mean()))
        for name, here in _kinds(groups)
        if here.sum() >= LEAST_GROUPS
    )


def _kinds(groups: Groups) -> Iterator[tuple[str, Bools]]:
    """Words for each kind, and the groups (N,) of it."""
    heavy = heaviest(groups)
    pooling = groups.ids / np.maximum(groups.bags, 1)
    for rows, reads, columns in product(pairwise(ROWS), pairwise(POOLING), pairwise(COLUMNS)):
        pairs = ((groups.rows, rows), (pooling, reads), (groups.dim, columns))
        here = np.logical_and.reduce([(values[heavy] >= low) & (values[heavy] < high) for values, (low, high) in pairs])
        width = "below 33 columns" if columns[0] == 0 else "33 columns and more"
        yield f"{_words('rows', rows)}, {_words('ids a bag', reads)}, {width}", here


def heaviest(groups: Groups) -> np.ndarray:
    """The piece (N,) of each group with most ids times columns."""
    order = np.lexsort((groups.ids * groups.dim, groups.owner))
    return order[groups.start[1:] - 1]


def _words(what: str, edges: tuple[float, float]) -> str:
    low, high = edges
    if low == 0:
        return f"below {high:,.0f} {what}"
    return f"{low:,.0f} {what} and more" if np.isinf(high) else f"{low:,.0f} to {high:,.0f} {what}"
