"""How far training data reaches: cells that hold trained tables, and how far a table lies from the nearest of them.

Least and most of every figure by itself would call a large, cold and often read table known where training saw large
ones, cold ones and often read ones, but none that is all three. So figures count together: rows, ids a bag, columns,
and how often a row of a batch is read. A cell is a factor of 4 wide in each of them.

Legend: N tables, C cells, 4 figures.
"""

import numpy as np

from recsmith._types import Floats, noun

FIGURES = ("rows", "pooling factor", "columns", "reads of a row")
CELL_OCTAVES = 2.0  # of a cell: trade-off, narrower ones tell more and make larger files
LEAST_FIGURE = 2.0**-10  # stands for less, of tables that hardly read anything
TABLES_AT_ONCE = 512  # it bounds the memory of their differences from all cells


@noun
class Region:
    """How far predictions are off in groups whose heaviest table is of one kind, of cases that training never saw.

    mean: of |predicted / measured - 1|. bias: of predicted / measured - 1; below 0 where groups take longer.
    """

    name: str
    samples: int
    mean: float
    bias: float


def figures_of(rows: Floats, ids: Floats, bags: Floats, columns: Floats, unique: Floats) -> Floats:
    """Logarithms (N, 4) of FIGURES, in cells."""
    reads = np.divide(ids, unique, out=np.ones(len(ids)), where=unique > 0)
    figures = np.stack([rows, ids / np.maximum(bags, 1e-9), columns, reads], axis=1)
    return np.log2(np.maximum(figures, LEAST_FIGURE)) / CELL_OCTAVES


def cells_of(figures: Floats) -> Floats:
    """The middles (C, 4) of the cells that hold tables with these figures (N, 4)."""
    return np.unique(np.rint(figures), axis=0)


def distances(figures: Floats, cells: Floats) -> Floats:
    """How many times off (N,) the worst figure of each table is from the edge of its nearest cell; 1 within one."""
    found = np.ones(len(figures))
    for start in range(0, len(figures), TABLES_AT_ONCE):
        some = figures[start : start + TABLES_AT_ONCE]
        apart = np.abs(some[:, None, :] - cells).max(axis=2).min(axis=1) - 0.5
        found[start : start + TABLES_AT_ONCE] = 2.0 ** (CELL_OCTAVES * np.maximum(apart, 0.0))
    return found
