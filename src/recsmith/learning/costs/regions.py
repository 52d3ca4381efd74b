"""Where a cost model is right and where it is not: held-out errors by kinds of groups.

A group is of the kind of its heaviest table, the one with most ids times columns: its rows, ids a bag, and columns.

Legend: N groups, P pieces.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural.inputs import Region, figures_of
from recsmith.learning.costs.data import Groups

EDGES: dict[str, tuple[int, ...]] = {
    "rows": (10_000, 1_000_000),
    "ids a bag": (10, 100),
    "columns": (33,),
}  # between kinds of tables
LEAST_GROUPS = 5  # of a region: fewer say nothing about it


def region_name(rows: float, pooling: float, columns: float) -> str:
    """The kind of a table, in words."""
    return ", ".join(_words(what, value) for what, value in zip(EDGES, (rows, pooling, columns), strict=True))


def regions_of(names: Iterable[str], off: Floats) -> tuple[Region, ...]:
    """The regions of groups by their names (N,) and predicted / measured - 1 (N,), the worst first."""
    where = np.array(list(names))
    found = [(name, off[where == name]) for name in sorted(set(where.tolist()))]
    regions = [
        Region(name=name, samples=len(here), mean=float(np.abs(here).mean()), bias=float(here.mean()))
        for name, here in found
        if len(here) >= LEAST_GROUPS
    ]
    return tuple(sorted(regions, key=lambda region: -region.mean))


def names_of(groups: Groups) -> Iterator[str]:
    """The region of each group (N,)."""
    heavy = _heaviest(groups)
    pooling = groups.ids / np.maximum(groups.bags, 1)
    for figures in zip(groups.rows[heavy], pooling[heavy], groups.dim[heavy], strict=True):
        yield region_name(*map(float, figures))


def figures(groups: Groups) -> Floats:
    """The figures (P, 4) of all pieces by which a table is told to be near training data or far from it."""
    return figures_of(groups.rows, groups.ids, groups.bags, groups.dim, groups.unique)


def _heaviest(groups: Groups) -> Ints:
    """The piece (N,) of each group with most ids times columns."""
    order: Ints = np.lexsort((groups.ids * groups.dim, groups.owner))
    return order[groups.start[1:] - 1]


def _words(what: str, value: float) -> str:
    edges = EDGES[what]
    place = bisect_right(edges, value)
    if place == 0:
        return f"below {edges[0]:,} {what}"
    if place == len(edges):
        return f"{edges[-1]:,} {what} and more"
    return f"{edges[place - 1]:,} to {edges[place]:,} {what}"
