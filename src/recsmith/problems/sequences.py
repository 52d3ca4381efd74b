"""Column-wise sequence tables: TorchRec runs those of a collection with one width for all.

Searches choose for each table alone, so of each collection only one width stays open to them.

Legend: T tables, O options.
"""

from collections.abc import Iterator

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.problems.empty_cluster import fits_alone
from recsmith.problems.modes import Modes
from recsmith.problems.options import Options, PieceTable
from recsmith.problems.widths import torchrec_width
from recsmith.sharding import TYPE_NAMES
from recsmith.workloads import Table

MOST_NAMED = 4  # tables in a message
_COLUMN_WISE = TYPE_NAMES.index("column_wise")


def barred_options(
    tables: tuple[Table, ...], cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options, least_width: Ints
) -> Bools:
    """Options (O,) of column-wise sequences whose width is not the one that stays open in their collection.

    The open width suits all tables that run in no other way, and most of those that fit the empty cluster in no other;
    among equals it is the one that TorchRec's planner proposes for the collection's first table, then the widest.

    Raises:
        UsageError: sequences of a collection run only column_wise, and share no width.
    """
    barred = np.zeros(len(options.mode), dtype=bool)
    split = _split_sequences(tables, modes, options)
    if not split.size:
        return barred
    fits = options.fits(fits_alone(cluster, modes.span[pieces.mode], pieces.head, pieces.tail))
    fits[split] &= _room(cluster, pieces, options.piece[split, 0]) >= options.count[split, 0]
    barred[split] = True
    table, width = options.table[split], pieces.width[options.piece[split, 0]]
    bound = ~np.isin(table, options.table[~barred])
    needy = fits[split] & ~np.isin(table, options.table[fits & ~barred])
    collection = np.array([each.collection for each in tables])[table]
    for name in np.unique(collection):
        own = collection == name
        first = int(table[own][0])
        usual = torchrec_width(tables[first].embedding_dim, int(least_width[first]) or None)
        suits = {w: _count(table[own & bound & (width == w)]) for w in np.unique(width[own]).tolist()}
        serves = {w: _count(table[own & needy & (width == w)]) for w in suits}
        open_ = max(suits, key=lambda w: (suits[w], serves[w], w == usual, w))
        if suits[open_] < _count(table[own & bound]):
            raise UsageError(_no_width(name, [tables[t] for t in np.unique(table[own & bound])]))
        barred[split[own & (width == open_)]] = False
    return barred


def other_openings(tables: tuple[Table, ...], modes: Modes, pieces: PieceTable, options: Options) -> Iterator[Bools]:
    """Barred options (O,) with any width open: in all collections the widest first, then narrower ones."""
    split = _split_sequences(tables, modes, options)
    width = pieces.width[options.piece[split, 0]]
    collection = np.array([table.collection for table in tables])[options.table[split]]
    widths = {name: np.unique(width[collection == name])[::-1] for name in np.unique(collection)}
    for turn in range(max(map(len, widths.values()), default=0)):
        barred = np.zeros(len(options.mode), dtype=bool)
        for name, offered in widths.items():
            barred[split[(collection == name) & (width != offered[min(turn, len(offered) - 1)])]] = True
        yield barred


def _split_sequences(tables: tuple[Table, ...], modes: Modes, options: Options) -> Ints:
    """The column-wise options of sequence tables."""
    sequence = np.array([not table.pooled for table in tables])
    return np.flatnonzero(sequence[options.table] & (modes.type[options.mode] == _COLUMN_WISE))


def _count(tables: Ints) -> int:
    return len(np.unique(tables))


def _no_width(collection: str, tables: list[Table]) -> str:
    listed = ", ".join(f"'{table.name}' ({table.embedding_dim})" for table in tables[:MOST_NAMED])
    more = f" and {len(tables) - MOST_NAMED} more" if len(tables) > MOST_NAMED else ""
    return (
        f"sequence tables {listed}{more} of collection '{collection}' run only column_wise, where TorchRec takes one "
        "width per collection, and no width that is allowed divides the columns of all; "
        "allow other widths, table_wise or row_wise, or put them in collections of their own"
    )


def _room(cluster: Cluster, pieces: PieceTable, piece: Ints) -> Ints:
    """How many of such pieces of a device (N,) the devices of an empty cluster hold."""
    weight = np.maximum(pieces.tail.device[piece], 1)
    return sum((capacity // weight for capacity in cluster.capacities), np.zeros_like(weight))
