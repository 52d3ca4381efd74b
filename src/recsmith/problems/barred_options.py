"""Options that are legal for their table but closed to searches, which choose for each table alone; pieces that fit.

Column-wise sequence tables: TorchRec runs those of a collection with one width for all, so only one width is open in
each collection.

Tables that stay together must cover the same ranks, so only one form is open to them: whole on one rank if all of them
may be, else whole on a host, else on all ranks, else any. Other forms may still be valid, and bounds and the planner
`exact` include them.

Legend: N pieces, W ranks, T tables, O options.
"""

from collections.abc import Iterator

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.elementary import distinct
from recsmith.errors import UsageError
from recsmith.problems.legality import Legality
from recsmith.problems.modes import Modes
from recsmith.problems.options import Options, PieceTable
from recsmith.problems.space import torchrec_width
from recsmith.sharding import TYPE_NAMES, Span
from recsmith.sharding.memory import Bytes
from recsmith.workloads import Table

_ENDLESS = np.iinfo(np.int64).max
MOST_NAMED = 4  # most tables that a message names
_COLUMN_WISE = TYPE_NAMES.index("column_wise")


def fits_alone(cluster: Cluster, beneath: int, span: Ints, head: Bytes, tail: Bytes) -> Bools:
    """Whether each piece (N,) of this span fits on some target of an empty cluster.

    beneath: bytes of a host for tables outside device memory.
    """
    flat = np.array(cluster.capacities, dtype=np.int64)
    on_rank = tail.device <= flat.max()
    on_host = np.zeros(len(span), dtype=bool)
    for row in distinct(flat.reshape(cluster.hosts, -1), axis=0):
        on_host |= (head.device <= row[:-1].min(initial=_ENDLESS)) & (tail.device <= row[-1])
    everywhere = (head.device <= flat[:-1].min(initial=_ENDLESS)) & (tail.device <= flat[-1])
    device = np.select([span == Span.RANK, span == Span.HOST], [on_rank, on_host], everywhere)
    last = (cluster.local_world_size - 1) * head.host + tail.host
    fullest = last if cluster.hosts == 1 else cluster.local_world_size * head.host
    held = np.select([span == Span.RANK, span == Span.HOST], [tail.host, last], fullest)
    return device & (held <= beneath)


# --- column-wise sequences -------------------------------------------------------------------------------------------


def barred_options(
    tables: tuple[Table, ...], cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options, least_width: Ints,
    alone: Bools,
) -> Bools:  # fmt: skip
    """Options (O,) of column-wise sequences whose width is not the open one of their collection.

    The open width suits all tables that can run only column-wise, and most of the tables that fit the empty cluster
    only column-wise. Ties are broken by the width that TorchRec's planner proposes for the collection's first table,
    then by the widest. alone: whether each piece (N,) fits the empty cluster.

    Raises:
        UsageError: sequences of a collection can run only column_wise, and share no width.
    """
    barred = np.zeros(len(options.mode), dtype=bool)
    split = _split_sequences(tables, modes, options)
    if not split.size:
        return barred
    fits = options.fits(alone)
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
    """Barred options (O,) with another width open: first the widest in all collections, then narrower ones."""
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
    """How many such pieces (N,), each on a single device, the devices of an empty cluster hold."""
    weight = np.maximum(pieces.tail.device[piece], 1)
    return sum((capacity // weight for capacity in cluster.capacities), np.zeros_like(weight))


# --- tables that stay together ---------------------------------------------------------------------------------------


def beside_partners(
    legality: Legality, cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options, alone: Bools
) -> Bools:
    """Options (O,) of tables that stay together whose form is not the one that is open to all of them.

    alone: whether each piece (N,) fits the empty cluster.
    """
    barred = np.zeros(len(options.mode), dtype=bool)
    together = [group for group in legality.groups if group.kind == "together"]
    if not together:
        return barred
    fits = options.fits(alone) & ~options.barred
    whole = options.count.sum(axis=1) == 1
    span = modes.span[options.mode]
    for group in together:
        tables = np.flatnonzero(np.isin(legality.row, group.rows) & (legality.row >= 0))
        own = np.isin(options.table, tables)
        for form in (Span.RANK, Span.HOST, Span.WORLD):
            alike = own & fits & whole & (span == int(form)) & ~barred
            if np.isin(tables, options.table[alike]).all() and _have_room(
                form, tables, alike, cluster, pieces, options
            ):
                barred |= own & ~alike
                break
    return barred


def _have_room(form: Span, tables: Ints, alike: Bools, cluster: Cluster, pieces: PieceTable, options: Options) -> bool:
    """Whether the smallest of these options of all tables fit on one rank together; other spans are not checked."""
    if form != Span.RANK:
        return True
    size = pieces.tail.device[options.piece[:, 0]]
    least = [int(size[alike & (options.table == t)].min()) for t in tables.tolist()]
    return sum(least) <= max(cluster.capacities)
