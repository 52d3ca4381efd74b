"""Whether plans keep their constraints; all planners use this one class.

Rules for single tables are applied when the problem is built: to their options, and to the ranks open to them.
Constraints between tables are checked for the pieces placed so far (`targets`), and for whole plans (`holds`).

Legend: T tables (in canonical order), W ranks, N placed pieces, R tables with constraints between tables, m of them in
one group.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.elementary import distinct
from recsmith.problems.constraints import Apart, Constraints, Together, members
from recsmith.problems.table_limits import SplitRule, TableLimits
from recsmith.sharding.coverage import by_target, covered_ranks
from recsmith.workloads import Table

Kind = Literal["together", "tables", "shards"]
Named = tuple[Kind, list[int], int, int]  # (kind, tables, most, local) of a group


class PlacedPieces(Protocol):
    """Placed pieces (N,), by mode, width and target; a Footprint is one."""

    @property
    def mode(self) -> Ints:
        """Mode of each piece (N,)."""
        ...

    @property
    def width(self) -> Ints:
        """Columns of each piece (N,)."""
        ...

    @property
    def target(self) -> Ints:
        """Target of each piece (N,): a rank, a host, or 0 for the world."""
        ...


@dataclass(frozen=True, slots=True)
class Group:
    """A constraint between some tables (m,), which are given by their rows in counts of shards on ranks (R, W).

    together: their shards are on the same ranks. tables, shards: at most `most` of them on a rank. local: ranks that
        count as one: 1, or those of a host.
    """

    kind: Kind
    rows: Ints
    most: int
    local: int

    def held(self, on: Ints) -> Ints:
        """The number of shards of each table on each rank or host (m, W / local)."""
        return by_target(on[self.rows], self.local).sum(axis=-1)

    def open(self, on: Ints, row: int, size: int) -> Bools:
        """Ranks (W,) that one more piece of `size` ranks of the table in this row may cover."""
        held = self.held(on)
        others = held[self.rows != row]
        if self.kind == "together":
            placed = others[(others > 0).any(axis=1)]
            free = (placed > 0).any(axis=0) if len(placed) else np.ones(held.shape[1], dtype=bool)
        elif self.kind == "tables":
            free = (others > 0).sum(axis=0) < self.most
        else:
            free = held.sum(axis=0) + min(size, self.local) <= self.most
        return np.repeat(free, self.local)

    def holds_with(self, on: Ints, row: int, own: Ints) -> Bools:
        """Whether (n,) the constraint holds if the table in this row adds these shards (n, W) to the placed ones."""
        others, own = self.held(on)[self.rows != row], by_target(own, self.local).sum(axis=-1)
        if self.kind == "together":
            placed = others[(others > 0).any(axis=1)][:1] > 0
            return np.asarray(((own > 0) == placed).all(axis=1)) if len(placed) else np.ones(len(own), dtype=bool)
        each = (others > 0).sum(axis=0) + (own > 0) if self.kind == "tables" else others.sum(axis=0) + own
        return np.asarray((each <= self.most).all(axis=1))

    def holds(self, on: Ints) -> bool:
        """Whether the constraint holds for what is placed so far; tables without shards are ignored."""
        held = self.held(on)
        if self.kind == "together":
            placed = held[(held > 0).any(axis=1)] > 0
            return bool((placed == placed[:1]).all())
        each = (held > 0).sum(axis=0) if self.kind == "tables" else held.sum(axis=0)
        return bool((each <= self.most).all())


@dataclass(frozen=True)
class Legality:
    """The constraints of plans besides memory. table, coverage (M,): for each mode of the problem.

    splits: rules for the columns of single tables.
    open (T, W): ranks open to each table; None if all are.
    groups: constraints between tables.
    row (T,): the row of each table in counts of shards, or -1 without such constraints.
    """

    tables: int
    world: int
    table: Ints
    coverage: Ints
    splits: dict[int, SplitRule]
    open: Bools | None
    groups: tuple[Group, ...]
    row: Ints

    @classmethod
    def of(
        cls, constraints: Constraints, limits: TableLimits, tables: tuple[Table, ...], cluster: Cluster,
        table: Ints, coverage: Ints,
    ) -> "Legality":  # fmt: skip
        """The legality of a problem's plans. Tables that stay together are open to the same ranks."""
        named = _named(constraints, [each.name for each in tables], cluster)
        used = distinct(np.array([t for _, numbers, _, _ in named for t in numbers], dtype=np.int64))
        row = np.full(len(tables), -1)
        row[used] = np.arange(len(used))
        groups = tuple(Group(kind, row[numbers], most, local) for kind, numbers, most, local in named)
        open_ = limits.open
        if open_ is not None:
            open_ = open_.copy()
            for kind, numbers, _, local in named:
                if kind == "together" and local == 1:
                    open_[numbers] = open_[numbers].all(axis=0)
        return cls(len(tables), cluster.world_size, table, coverage, limits.splits, open_, groups, row)

    @cached_property
    def any(self) -> bool:
        """Whether constraints limit anything; limits of kernels do not count, as options already follow them."""
        return bool(self.groups) or self.open is not None or any(rule.given for rule in self.splits.values())

    @cached_property
    def pinned(self) -> Bools:
        """Tables (T,) that have only one possible placement."""
        pinned = np.zeros(self.tables, dtype=bool)
        pinned[[t for t, rule in self.splits.items() if rule.pinned]] = True
        return pinned

    @cached_property
    def limited(self) -> Bools:
        """Tables (T,) whose columns may not be split freely."""
        limited = np.zeros(self.tables, dtype=bool)
        limited[list(self.splits)] = True
        return limited

    @property
    def has_places(self) -> bool:
        """Whether each group can place a shard of every table on its open ranks; if not, no plan keeps constraints."""
        open_ = np.ones((self.tables, self.world), dtype=bool) if self.open is None else self.open
        for group in self.groups:
            ranks = np.asarray(open_[np.isin(self.row, group.rows) & (self.row >= 0)].any(axis=0))
            places = int(np.count_nonzero(by_target(ranks, group.local).any(axis=-1)))
            if group.kind != "together" and len(group.rows) > group.most * places:
                return False
        return True

    @property
    def counts_shards(self) -> bool:
        """Whether the number of shards is constrained, and not only their places."""
        return any(rule.max_shards for rule in self.splits.values()) or any(g.kind == "shards" for g in self.groups)

    @cached_property
    def groups_of(self) -> dict[int, list[Group]]:
        """The groups of each table that is in any group."""
        found: dict[int, list[Group]] = {}
        for group in self.groups:
            for t in np.flatnonzero(np.isin(self.row, group.rows) & (self.row >= 0)).tolist():
                found.setdefault(t, []).append(group)
        return found

    # --- while a plan is made -------------------------------------------------------------------------------------

    def nothing_placed(self) -> Ints:
        """Counts of shards (R, W) of an empty plan."""
        return np.zeros((int(self.row.max(initial=-1)) + 1, self.world), dtype=np.int64)

    def targets(self, table: int, size: int, on: Ints | None = None) -> Bools:
        """Targets (W / size,) that are open to a piece of `size` ranks, next to the placed shards (R, W)."""
        ranks = np.ones(self.world, dtype=bool) if self.open is None else self.open[table]
        for group in self.groups_of.get(table, ()) if on is not None else ():
            assert on is not None
            ranks = ranks & group.open(on, int(self.row[table]), size)
        return np.asarray(np.all(by_target(ranks, size), axis=-1))

    def pinned_targets(self, table: int, width: int, taken: Ints, size: int) -> Bools:
        """Targets (W / size,) where a pinned table has a piece of this width, besides the targets already taken."""
        left = np.zeros(self.world // size, dtype=np.int64)
        for wide, target in self.splits[table].pinned:
            left[target] += wide == width
        np.subtract.at(left, taken, 1)
        return left > 0

    # --- whole plans ----------------------------------------------------------------------------------------------

    def placed(self, pieces: PlacedPieces) -> Ints:
        """Counts of shards (R, W) of placed pieces."""
        on = self.nothing_placed()
        row, size = self.row[self.table[pieces.mode]], self.coverage[pieces.mode]
        for coverage in np.unique(size[row >= 0]).tolist():
            some = (size == coverage) & (row >= 0)
            ranks = covered_ranks(pieces.target[some], coverage)
            np.add.at(on, (np.repeat(row[some], coverage), ranks.ravel()), 1)
        return on

    def holds(self, pieces: PlacedPieces) -> bool:
        """Whether placed pieces keep every constraint."""
        return not self.any or not self.broken(pieces).any()

    def broken(self, pieces: PlacedPieces) -> Bools:
        """Tables (T,) that break a rule of their own, or are in a group whose constraint is broken."""
        broken = self.broken_alone(pieces)
        on = self.placed(pieces) if self.groups else None
        for group in self.groups if on is not None else ():
            assert on is not None
            if not group.holds(on):
                broken[np.isin(self.row, group.rows) & (self.row >= 0)] = True
        return broken

    def broken_alone(self, pieces: PlacedPieces) -> Bools:
        """Tables (T,) whose placed pieces break a rule for the table itself."""
        broken = np.zeros(self.tables, dtype=bool)
        table = self.table[pieces.mode]
        if self.open is not None:
            broken[table[~self._are_open(table, pieces)]] = True
        for t, rule in self.splits.items():
            own = np.flatnonzero(table == t)
            broken[t] |= bool(own.size) and not self._is_split_well(rule, pieces, own)
        return broken

    def _are_open(self, table: Ints, pieces: PlacedPieces) -> Bools:
        assert self.open is not None
        kept, size = np.ones(len(table), dtype=bool), self.coverage[pieces.mode]
        for coverage in np.unique(size).tolist():
            some = np.flatnonzero(size == coverage)
            open_ = np.asarray(np.all(by_target(self.open[table[some]], coverage), axis=-1))
            kept[some] = open_[np.arange(len(some)), pieces.target[some]]
        return kept

    def _is_split_well(self, rule: SplitRule, pieces: PlacedPieces, own: Ints) -> bool:
        found = sorted(zip((-pieces.width[own]).tolist(), pieces.target[own].tolist(), strict=True))
        if rule.pinned and tuple((-width, target) for width, target in found) != rule.pinned:
            return False
        if not all(map(rule.allows_width, pieces.width[own].tolist())):
            return False
        return not rule.max_shards or int(self.coverage[pieces.mode[own]].sum()) <= rule.max_shards


def _named(constraints: Constraints, names: list[str], cluster: Cluster) -> list[Named]:
    """(kind, tables, most, local) of each different group that has two tables or more, or whose shards are counted."""
    found: list[Named] = []
    for each in constraints.between:
        numbers = members(each.patterns, names)
        if isinstance(each, Together | Apart):
            local = cluster.local_world_size if each.per == "host" else 1
            found.append(("together" if isinstance(each, Together) else "tables", numbers, 1, local))
            continue
        if each.max_tables is not None:
            found.append(("tables", numbers, each.max_tables, 1))
        if each.max_shards is not None:
            found.append(("shards", numbers, each.max_shards, 1))
    once: dict[tuple[Kind, tuple[int, ...], int, int], Named] = {
        (kind, tuple(numbers), most, local): (kind, numbers, most, local) for kind, numbers, most, local in found
    }
    return [each for each in once.values() if len(each[1]) > 1 or each[0] == "shards"]
