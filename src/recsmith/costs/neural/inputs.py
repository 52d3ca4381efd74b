"""The inputs of learned cost models: figures of a piece's work, inputs of its unit costs, and the trained range.

Reuse enters through the different rows that a batch reads: with ids and rows given, the shape of the reuse bins had no
measurable effect (docs/learning.md).

Range: if each figure had its own minimum and maximum, a large, cold and often read table would count as known if
training saw large ones, cold ones and often read ones, but none that is all three. So figures are combined: rows, ids
per bag, columns, and how often a row of a batch is read. A cell spans a factor of 4 in each of them.

New inputs are appended. A model uses as many as it learned from, which are the first ones.

Legend: N pieces or tables, b = 7 figures of work, c = 16 of a corrected model, h = 4 cached shares, x = 17 inputs, C
cells.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints, noun
from recsmith.costs.embedding_kernels import EmbeddingKernels
from recsmith.elementary import distinct, log2, power

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam")  # optimizers in the measurements
DATA_TYPES = ("fp32", "fp16")
ELEMENT = np.array([4.0, 2.0])  # bytes of an element, in order of DATA_TYPES
LEAST_SHARE = 1e-12  # share of reads that replaces 0 as a divisor
WORK = ("pieces", "bags", "ids", "bag columns", "id columns", "rows", "row columns")
UNIT = np.array([1e-6, 1e-8, 1e-8, 3e-10, 3e-10, 2e-8, 1e-9])
"""Seconds of each figure on one CPU core, about: they only bring inputs near 1, training finds the rest."""
CACHED_SHARES = (1 / 2, 1 / 8, 1 / 64, 0.0)  # share of a table's different rows that a cache holds
CORRECTED = (*WORK, "forward memory", "forward cache", "backward memory", "backward cache",
             *(f"forward memory, {share:.2g} cached" for share in CACHED_SHARES), "bytes read again")  # fmt: skip
"""Figures of a corrected model: seconds of cost model `analytic`, seconds that memory takes longer where the cache
holds less and less of a table, each beyond the one before it, and what a cache would hold."""
AGAIN_UNIT = 1e-12  # seconds per byte read again: only scales bytes to the size of the seconds next to them
INPUTS = ("width", "pooling", "bags", "ids", "unique share", "unique rows", "unique bytes", "table bytes", "rows",
          "output bytes", "width % 8", "width % 16", "sgd", "adagrad", "rowwise_adagrad", "fp16", "adam")  # fmt: skip
FIRST_INPUTS = INPUTS.index("adam")  # inputs of models that learned without Adam, and of policies that place tables
FIGURES = ("rows", "pooling factor", "columns", "reads of a row")
CELL_OCTAVES = 2.0  # width of a cell; trade-off: narrower cells distinguish more and make larger files
LEAST_FIGURE = 2.0**-10  # replaces smaller figures, of tables that hardly read anything
TABLES_AT_ONCE = 64  # bounds the memory for their differences from all cells


class PieceWork(NamedTuple):
    """Pieces (N,): ids, bags and different rows per step; rows and columns held; optimizer and data type by number."""

    ids: Floats
    bags: Floats
    unique: Floats
    rows: Floats
    width: Floats
    optimizer: Ints
    data_type: Ints


def work_of(piece: PieceWork) -> Floats:
    """Figures of work (N, b) with which seconds grow."""
    figures = (np.ones(len(piece.ids)), piece.bags, piece.ids, piece.bags * piece.width, piece.ids * piece.width,
               piece.unique, piece.unique * piece.width)  # fmt: skip
    return np.stack(figures, axis=1) * UNIT


def corrected_work_of(
    piece: PieceWork, kernels: EmbeddingKernels, modes: Ints, widths: Ints, analytic: Floats, missing: Floats
) -> Floats:
    """Figures (N, c) for a corrected model, of pieces with modes and widths (N,) in the problem of `kernels`.

    analytic: its seconds, memory and cache, forward and backward (N, 4). missing: the result of missing_shares (N, h).
    """
    more, again = kernels.crowded(modes, widths, missing)
    return np.hstack([work_of(piece), analytic, more, again[:, None] * AGAIN_UNIT])


def missing_shares(hot: Callable[[Floats], Floats], unique: Floats) -> Floats:
    """Share of the repeated reads that miss a cache which holds CACHED_SHARES of the rows (N, h).

    hot: the share of reads on this many hottest rows (N,) of each table.
    """
    all_hot = np.maximum(hot(unique), LEAST_SHARE)
    found = [1 - np.minimum(hot(unique * share) / all_hot, 1.0) for share in CACHED_SHARES]
    return np.where(unique[:, None] > 0, np.stack(found, axis=1), 0.0)


def inputs_of(piece: PieceWork) -> Floats:
    """Inputs (N, x), all of the order of 1: logarithms, shares, and names as zeros and ones."""
    element = ELEMENT[piece.data_type]
    share = np.divide(piece.unique, piece.ids, out=np.zeros(len(piece.ids)), where=piece.ids > 0)
    columns = [
        _log(piece.width), _log(16 * piece.ids / np.maximum(piece.bags, 1e-9)), _log(piece.bags), _log(piece.ids),
        share, _log(piece.unique), _log(piece.unique * piece.width * element), _log(piece.rows * piece.width * element),
        _log(piece.rows), _log(piece.bags * piece.width * 4), piece.width % 8 != 0, piece.width % 16 != 0,
        *(piece.optimizer == i for i in range(3)), piece.data_type == 1, piece.optimizer == OPTIMIZERS.index("adam"),
    ]  # fmt: skip
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def _log(value: Floats) -> Floats:
    return log2(1 + value) / 8


@noun
class Region:
    """Errors of predictions for groups whose costliest table is of one kind, in cases that training never saw.

    mean: of |predicted / measured - 1|.
    bias: of predicted / measured - 1; below 0 if groups take longer than predicted.
    """

    name: str
    samples: int
    mean: float
    bias: float


def figures_of(rows: Floats, ids: Floats, bags: Floats, columns: Floats, unique: Floats) -> Floats:
    """Logarithms (N, 4) of FIGURES, in units of a cell's width."""
    reads = np.divide(ids, unique, out=np.ones(len(ids)), where=unique > 0)
    figures = np.stack([rows, ids / np.maximum(bags, 1e-9), columns, reads], axis=1)
    return log2(np.maximum(figures, LEAST_FIGURE)) / CELL_OCTAVES


def cells_of(figures: Floats) -> Floats:
    """The centres (C, 4) of the cells that contain tables with these figures (N, 4)."""
    return distinct(np.rint(figures), axis=0)


def distances(figures: Floats, cells: Floats) -> Floats:
    """Factor (N,) between the worst figure of each table and the edge of its nearest cell; 1 inside a cell."""
    tables, index = np.unique(figures, axis=0, return_inverse=True)  # many modes of a table have the same figures
    found = np.ones(len(tables))
    beyond = np.flatnonzero(~_within(tables, cells))
    for start in range(0, len(beyond), TABLES_AT_ONCE):
        some = beyond[start : start + TABLES_AT_ONCE]
        worst = np.zeros((len(some), len(cells)))
        for figure in range(cells.shape[1]):
            np.maximum(worst, np.abs(tables[some, figure, None] - cells[:, figure]), out=worst)
        found[some] = power(2.0, CELL_OCTAVES * np.maximum(worst.min(axis=1) - 0.5, 0.0))
    return found[index]


def _within(figures: Floats, cells: Floats) -> Bools:
    """Whether figures (N, 4) are inside one of the cells (C, 4)."""
    number = np.unique(np.concatenate([cells, np.rint(figures)]), axis=0, return_inverse=True)[1]
    return np.isin(number[len(cells) :], number[: len(cells)])
