"""Column-wise sequence tables: TorchRec runs those of a collection with one width for all.

Searches choose for each table alone, so of each collection only one width stays open to them.

Legend: T tables, O options.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.alone import fits_alone
from recsmith.problems.modes import Modes
from recsmith.problems.options import NO_PIECE, Options, PieceTable
from recsmith.problems.widths import torchrec_width
from recsmith.sharding import TYPE_NAMES
from recsmith.workloads import Table

_COLUMN_WISE = TYPE_NAMES.index("column_wise")


def barred_options(
    tables: tuple[Table, ...], cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options, least_width: Ints
) -> Bools:
    """Options (O,) of column-wise sequences whose width is not the one that stays open in their collection.

    The open width is the one with which most tables fit the empty cluster that fit in no other way; among equals the
    one that TorchRec's planner proposes for the collection's first table, then the widest.
    """
    barred = np.zeros(len(options.mode), dtype=bool)
    sequence = np.array([not table.pooled for table in tables])
    split = np.flatnonzero(sequence[options.table] & (modes.type[options.mode] == _COLUMN_WISE))
    if not split.size:
        return barred
    fits = _fitting(cluster, modes, pieces, options)
    fits[split] &= _room(cluster, pieces, options.piece[split, 0]) >= options.count[split, 0]
    otherwise = np.zeros(len(tables), dtype=bool)
    otherwise[options.table[np.setdiff1d(np.flatnonzero(fits), split)]] = True
    table, width = options.table[split], pieces.width[options.piece[split, 0]]
    needed = fits[split] & ~otherwise[table]
    collection = np.array([table.collection for table in tables])[table]
    for name in np.unique(collection):
        own = collection == name
        first = int(table[own][0])
        usual = torchrec_width(tables[first].embedding_dim, int(least_width[first]) or None)
        served = {w: len(np.unique(table[own & needed & (width == w)])) for w in width[own].tolist()}
        open_ = max(served, key=lambda w: (served[w], w == usual, w))
        barred[split[own & (width != open_)]] = True
    return barred


def _fitting(cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options) -> Bools:
    """Whether each piece of an option (O,) fits alone."""
    fits = fits_alone(cluster, modes.span[pieces.mode], pieces.head, pieces.tail)
    return (fits[options.piece] | (options.piece == NO_PIECE)).all(axis=1)


def _room(cluster: Cluster, pieces: PieceTable, piece: Ints) -> Ints:
    """How many of such pieces of a device (N,) the devices of an empty cluster hold."""
    weight = np.maximum(pieces.tail.device[piece], 1)
    return sum((capacity // weight for capacity in cluster.capacities), np.zeros_like(weight))
