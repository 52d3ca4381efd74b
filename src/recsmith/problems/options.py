"""Options: every way to split the columns of a mode into pieces.

Legend: T tables (in canonical order), M modes, P pieces, O options.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.demand import Demand
from recsmith.problems.modes import Modes
from recsmith.problems.space import Space
from recsmith.problems.widths import Split, column_splits
from recsmith.sharding import SHARDING_TYPES, ShardingType
from recsmith.sharding.memory import Bytes
from recsmith.workloads import Table

NO_PIECE = -1  # an option without a second width, or a table without an option
FEW_TABLES = 300  # up to which columns are split finely: where pieces are few, their widths are what balances ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTable:
    """Per piece (P,): mode, width, and bytes on each covered rank but the last (head) and on the last (tail)."""

    mode: Ints
    width: Ints
    head: Bytes
    tail: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Per option (O,), in order of tables: its mode, and up to two (piece, count) pairs, shape (O, 2).

    barred: legal alone, but not beside other tables' options; bounds count them, searches leave them out.
    """

    table: Ints
    mode: Ints
    piece: Ints
    count: Ints
    barred: Bools
    start: Ints  # (T + 1,): the options of table t are start[t] .. start[t + 1]

    def fits(self, pieces: Bools) -> Bools:
        """Whether all pieces of an option (O,) are among those (P,) that fit."""
        return (pieces[self.piece] | (self.piece == NO_PIECE)).all(axis=1)


def build_options(
    tables: tuple[Table, ...], demand: Demand, modes: Modes, cluster: Cluster, space: Space, least_width: Ints
) -> tuple[PieceTable, Options]:
    """All options, family by family: modes of one type, dim and rule are split alike, so they are built together.

    Pieces are not weighed yet.
    """
    families = _families(demand, modes, least_width)
    none = np.zeros(0, dtype=np.int64)
    piece_mode, piece_width = [none], [none]
    columns = [np.zeros((6, 0), dtype=np.int64)]  # rows (mode, split number, piece 1, count 1, piece 2, count 2)
    made = 0
    for (kind, min_width), members in families:
        sharding = SHARDING_TYPES[kind]
        table, fine = tables[modes.table[members[0]]], len(tables) <= FEW_TABLES
        splits = _splits(sharding, table, cluster, space, min_width, fine=fine)
        widths = sorted({width for split in splits for width, _ in split})
        if not splits:
            continue
        place = {width: i for i, width in enumerate(widths)}
        first = made + np.arange(len(members)) * len(widths)
        piece_mode.append(np.repeat(members, len(widths)))
        piece_width.append(np.tile(np.array(widths, dtype=np.int64), len(members)))
        made += len(members) * len(widths)
        for number, split in enumerate(splits):
            pairs = [(first + place[width], np.full(len(members), count)) for width, count in split]
            pairs += [(np.full(len(members), NO_PIECE), np.zeros(len(members), dtype=np.int64))] * (2 - len(pairs))
            columns.append(np.stack([members, np.full(len(members), number), *pairs[0], *pairs[1]]))
    rows = np.concatenate(columns, axis=1)
    order = np.lexsort((rows[1], rows[0]))  # modes are in order of tables
    mode, _, piece1, count1, piece2, count2 = rows[:, order]
    table = modes.table[mode]
    start = np.searchsorted(table, np.arange(len(tables) + 1))
    nothing = Bytes(none, none)
    pieces = PieceTable(mode=np.concatenate(piece_mode), width=np.concatenate(piece_width), head=nothing, tail=nothing)
    piece, count = np.stack([piece1, piece2], axis=1), np.stack([count1, count2], axis=1)
    barred = np.zeros(len(mode), dtype=bool)  # decided when pieces are weighed (sequences.py)
    return pieces, Options(table=table, mode=mode, piece=piece, count=count, barred=barred, start=start)


def _families(demand: Demand, modes: Modes, least_width: Ints) -> list[tuple[tuple[int, int | None], Ints]]:
    """((type, min_width), modes) for each set of modes whose columns split alike: one dim, pooled or not."""
    keys = np.stack([modes.type, least_width[modes.table], demand.dim[modes.table], demand.pooled[modes.table]])
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    names = [(int(kind), int(limit) or None) for kind, limit, *_ in unique.T]
    return list(zip(names, members, strict=True))


def _splits(
    sharding: ShardingType, table: Table, cluster: Cluster, space: Space, min_width: int | None, *, fine: bool
) -> tuple[Split, ...]:
    """Splits of a table's columns that a search tries."""
    if not sharding.splits_columns:
        return (((table.embedding_dim, 1),),)
    least, most = sharding.column_counts(table, cluster)
    return column_splits(
        table.embedding_dim, least, most, space.widths, min_width,
        equal=sharding.equal_widths(table, cluster), fine=fine and space.widths == "any",
    )  # fmt: skip
