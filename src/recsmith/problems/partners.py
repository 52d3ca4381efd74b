"""Tables that stay together: which of their options searches choose from.

Searches choose an option for each table alone, so of tables that must cover the same ranks only one form stays open:
whole on one rank where all of them may, else whole on a host, else on all ranks, else any. The others are barred: they
may still be right, and bounds and planner exact count them.

Legend: O options.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.empty_cluster import fits_alone
from recsmith.problems.legality import Legality
from recsmith.problems.modes import Modes
from recsmith.problems.options import Options, PieceTable
from recsmith.sharding import Span


def beside_partners(legality: Legality, cluster: Cluster, modes: Modes, pieces: PieceTable, options: Options) -> Bools:
    """Options (O,) of tables that stay together which have another form than the one that is open to all of them."""
    barred = np.zeros(len(options.mode), dtype=bool)
    together = [group for group in legality.groups if group.kind == "together"]
    if not together:
        return barred
    fits = options.fits(fits_alone(cluster, modes.span[pieces.mode], pieces.head, pieces.tail)) & ~options.barred
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
    """Whether the lightest of these options of all tables fit one rank together; hosts and the world are not asked."""
    if form != Span.RANK:
        return True
    size = pieces.tail.device[options.piece[:, 0]]
    least = [int(size[alike & (options.table == t)].min()) for t in tables.tolist()]
    return sum(least) <= max(cluster.capacities)
