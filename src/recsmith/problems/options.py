"""Options: all ways to split the columns of a mode into pieces.

Legend: T tables (in canonical order), M modes, P pieces, O options.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.modes import Demand, Modes
from recsmith.problems.space import Space, Split, column_splits
from recsmith.problems.table_limits import SplitRule
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP, ShardingType
from recsmith.sharding.memory import Bytes
from recsmith.workloads import Table

NO_PIECE = -1  # marks an option without a second width, or a table without an option
# up to this many tables, columns are split finely: with few pieces, their widths decide how ranks balance
FEW_TABLES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTable:
    """Per piece (P,): mode, width, and bytes on each covered rank except the last (head) and on the last (tail)."""

    mode: Ints
    width: Ints
    head: Bytes
    tail: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Per option (O,), in order of tables: its mode, and up to two (piece, count) pairs, shape (O, 2).

    barred: legal alone, but not next to other tables' options; bounds include them, searches leave them out.
    """

    table: Ints
    mode: Ints
    piece: Ints
    count: Ints
    barred: Bools
    start: Ints  # (T + 1,): the options of table t are start[t] .. start[t + 1]

    def fits(self, pieces: Bools) -> Bools:
        """Whether all pieces of an option (O,) are among the pieces (P,) that fit."""
        return (pieces[self.piece] | (self.piece == NO_PIECE)).all(axis=1)


def build_options(
    tables: tuple[Table, ...], demand: Demand, modes: Modes, cluster: Cluster, space: Space, least_width: Ints,
    rules: dict[int, SplitRule] | None = None,
) -> tuple[PieceTable, Options]:  # fmt: skip
    """All options, built by family: modes of one type, dim and rule have the same splits.

    rules: for the columns of some tables, by number; a pinned table has one pair for each width of its pieces.

    The bytes of pieces are not computed yet.
    """
    rules = rules or {}
    families = _families(demand, modes, least_width, rules)
    most = max([2, *(len(rule.split) for rule in rules.values())])
    none = np.zeros(0, dtype=np.int64)
    piece_mode, piece_width = [none], [none]
    columns = [np.zeros((2 + 2 * most, 0), dtype=np.int64)]  # rows (mode, split number, piece 1, count 1, piece 2 ...)
    made = 0
    for (kind, min_width), members in families:
        sharding = SHARDING_TYPES[kind]
        table, fine = tables[modes.table[members[0]]], len(tables) <= FEW_TABLES
        rule = rules.get(int(modes.table[members[0]]))
        splits = _splits(sharding, table, cluster, space, min_width, rule, fine=fine)
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
            pairs += [(np.full(len(members), NO_PIECE), np.zeros(len(members), dtype=np.int64))] * (most - len(pairs))
            columns.append(np.stack([members, np.full(len(members), number), *(row for pair in pairs for row in pair)]))
    rows = np.concatenate(columns, axis=1)
    order = np.lexsort((rows[1], rows[0]))  # modes are in order of tables
    mode, _, *pairs = rows[:, order]
    table = modes.table[mode]
    start = np.searchsorted(table, np.arange(len(tables) + 1))
    nothing = Bytes(none, none)
    pieces = PieceTable(mode=np.concatenate(piece_mode), width=np.concatenate(piece_width), head=nothing, tail=nothing)
    piece, count = np.stack(pairs[::2], axis=1), np.stack(pairs[1::2], axis=1)
    barred = np.zeros(len(mode), dtype=bool)  # decided when the bytes of pieces are known (barred_options.py)
    return pieces, Options(table=table, mode=mode, piece=piece, count=count, barred=barred, start=start)


def _families(
    demand: Demand, modes: Modes, least_width: Ints, rules: dict[int, SplitRule]
) -> list[tuple[tuple[int, int | None], Ints]]:
    """((type, min_width), modes) for each set of modes with the same splits: one dim, rule, pooled or not."""
    numbers: dict[SplitRule | None, int] = {None: 0}
    rule = np.array([numbers.setdefault(rules.get(t), len(numbers)) for t in range(len(demand.dim))], dtype=np.int64)
    table, look = modes.table, rule
    for column in (demand.pooled, demand.dim, least_width):  # the last column dominates the order
        numbered = np.unique(column, return_inverse=True)[1]
        look = np.unique(numbered * (1 + int(look.max())) + look, return_inverse=True)[1]
    inverse = np.unique(modes.type * (1 + int(look.max())) + look[table], return_inverse=True)[1]
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    names = [(int(modes.type[mode]), int(least_width[table[mode]]) or None) for mode, *_ in members]
    return list(zip(names, members, strict=True))


def _splits(
    sharding: ShardingType, table: Table, cluster: Cluster, space: Space, min_width: int | None,
    rule: SplitRule | None, *, fine: bool,
) -> tuple[Split, ...]:  # fmt: skip
    """The splits of a table's columns that a search tries, within its rule."""
    usual = _usual_splits(sharding, table, cluster, space, min_width, fine=fine)
    if rule is None:
        return usual
    least, most = sharding.column_counts(table, cluster) if sharding.splits_columns else (1, 1)
    equal = sharding.splits_columns and sharding.equal_widths(table, cluster)
    more = {rule.split} if rule.pinned else set(rule.splits_of(table.embedding_dim)) - set(usual)
    fitting = (
        split
        for split in more
        if least <= sum(count for _, count in split) <= most
        and (len(split) == 1 or (sharding.splits_columns and not equal))
        and split[-1][0] >= min(min_width or WIDTH_STEP, table.embedding_dim)
        and (space.widths == "any" or split in usual)
    )
    coverage = sharding.coverage(cluster)
    return tuple(split for split in dict.fromkeys((*usual, *sorted(fitting))) if rule.allows(split, coverage))


def _usual_splits(
    sharding: ShardingType, table: Table, cluster: Cluster, space: Space, min_width: int | None, *, fine: bool
) -> tuple[Split, ...]:
    """The splits of a table's columns that a search tries if no rule limits them."""
    if not sharding.splits_columns:
        return (((table.embedding_dim, 1),),)
    least, most = sharding.column_counts(table, cluster)
    return column_splits(
        table.embedding_dim, least, most, space.widths, min_width,
        equal=sharding.equal_widths(table, cluster), fine=fine and space.widths == "any",
    )  # fmt: skip
