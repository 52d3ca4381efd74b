"""What rules and kernels leave to a single table: splits of its columns, ranks, and modes that fit on these ranks.

Legend: T tables (in canonical order), W ranks, M modes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Placement
from recsmith.plans.check import check_placement
from recsmith.problems.constraints import Constraints, RulesByTable
from recsmith.problems.space import NoChoiceLeft, Pin, Split, TableRule
from recsmith.sharding import widest_piece
from recsmith.sharding.coverage import by_target
from recsmith.workloads import Table


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How a table's columns may be split.

    widths: allowed widths of its pieces, None for any.
    max_shards: most shards of the table, 0 for any.
    pinned: the (width, target) of each piece of a pinned table, widest first.
    pin: the only placement that the table may have.
    widest: largest width that kernels support, 0 for any.
    """

    widths: tuple[int, ...] | None = None
    max_shards: int = 0
    pinned: tuple[tuple[int, int], ...] = ()
    pin: Placement | None = None
    widest: int = 0

    @property
    def given(self) -> bool:
        """Whether constraints limit the table, and not only its kernels."""
        return self != SplitRule(widest=self.widest)

    def allows_width(self, width: int) -> bool:
        """Whether a piece may have this width."""
        return (self.widths is None or width in self.widths) and (not self.widest or width <= self.widest)

    def allows(self, split: Split, coverage: int) -> bool:
        """Whether a split is allowed, for pieces that cover `coverage` ranks."""
        shards = coverage * sum(count for _, count in split)
        if self.pinned and split != self.split:
            return False
        wide = all(self.allows_width(width) for width, _ in split)
        return wide and (not self.max_shards or shards <= self.max_shards)

    @property
    def split(self) -> Split:
        """The (width, count) pairs of a pinned table, widest first."""
        widths = [width for width, _ in self.pinned]
        return tuple((width, len(list(each))) for width, each in groupby(sorted(widths, reverse=True)))

    def splits_of(self, dim: int) -> Iterator[Split]:
        """Splits into pieces of one or two of the allowed widths."""
        for wide in self.widths or ():
            if dim % wide == 0:
                yield ((wide, dim // wide),)
            for narrow in self.widths or ():
                counts = range(1, dim // wide + 1) if narrow < wide else ()
                for count in counts:
                    rest = dim - count * wide
                    if rest and rest % narrow == 0:
                        yield ((wide, count), (narrow, rest // narrow))


@dataclass(frozen=True, slots=True, eq=False)
class TableLimits:
    """What rules leave to each table. splits: rules for columns, by table number.

    open (T, W): ranks that a table's shards may cover; None if rules name no rank.
    """

    splits: dict[int, SplitRule] = field(default_factory=dict[int, SplitRule])
    open: Bools | None = None

    @property
    def pinned(self) -> list[int]:
        """The numbers of tables that have only one possible placement."""
        return [t for t, rule in self.splits.items() if rule.pinned]

    @classmethod
    def of(
        cls, constraints: Constraints, tables: tuple[Table, ...], rules: dict[str, TableRule | None], cluster: Cluster
    ) -> "TableLimits":
        """The limits of all tables; UsageError if a rule names a rank that does not exist, or a pin is illegal."""
        splits = {
            t: SplitRule(widest=most)
            for t, table in enumerate(tables)
            if (most := widest_piece(table, cluster)) < table.embedding_dim
        }
        placed = any(_places(rule) for rule in constraints.rules)
        if not placed and all(rule.widths is None and rule.max_shards is None for rule in constraints.rules):
            return cls(splits) if splits else NO_LIMITS
        open_ = np.ones((len(tables), cluster.world_size), dtype=bool) if placed else None
        for rule in constraints.rules:
            _check_places(rule, cluster)
        by_table = RulesByTable(constraints.rules)
        for t, table in enumerate(tables):
            own = by_table.of(table.name)
            merged = rules[table.name]
            if not own or merged is None:
                continue
            pins = {_written_out(rule.pin, table) for rule in own if rule.pin is not None}
            if len(pins) > 1:
                raise NoChoiceLeft(f"the rules for table '{table.name}' pin it to {len(pins)} placements; keep one")
            pin = next(iter(pins), None)
            if pin or merged.widths or merged.max_shards:
                pinned = _pieces(pin, table, cluster) if pin else ()
                widest = splits[t].widest if t in splits else 0
                splits[t] = SplitRule(merged.widths, merged.max_shards or 0, pinned, pin, widest)
            if open_ is not None:
                _close(open_[t], own, cluster)
        return cls(splits, open_)

    def modes(self, table: Ints, coverage: Ints) -> Bools:
        """Modes (M,) with some target whose ranks are all open to their table, and with few enough shards."""
        kept = np.ones(len(table), dtype=bool)
        for mode, (t, size) in enumerate(zip(table.tolist(), coverage.tolist(), strict=True)):
            rule = self.splits.get(t)
            kept[mode] = rule is None or not rule.max_shards or size <= rule.max_shards
            if self.open is not None:
                kept[mode] &= bool(by_target(self.open[t], size).all(axis=-1).any())
        return kept


def _places(rule: TableRule) -> bool:
    places = (rule.pin, rule.ranks, rule.not_ranks, rule.hosts, rule.not_hosts)
    return any(each is not None for each in places)


def _check_places(rule: TableRule, cluster: Cluster) -> None:
    """Refuse ranks and hosts that the cluster does not have."""
    pinned = rule.pin.ranks if rule.pin else ()
    for names, what, count in (
        ((*(rule.ranks or ()), *(rule.not_ranks or ()), *pinned), "rank", cluster.world_size),
        ((*(rule.hosts or ()), *(rule.not_hosts or ())), "host", cluster.hosts),
    ):
        unknown = next((each for each in names if not 0 <= each < count), None)
        if unknown is not None:
            known = f"{what}s 0 to {count - 1}" if count > 1 else f"{what} 0 alone"
            raise UsageError(f"rule '{rule.tables}' names {what} {unknown}; the cluster has {known}")


def _written_out(pin: Pin, table: Table) -> Placement:
    """The placement of a pin; a single piece has no widths, as in plans."""
    placement = pin.placement(table.name)
    return replace(placement, widths=()) if placement.widths == (table.embedding_dim,) else placement


def _pieces(placement: Placement, table: Table, cluster: Cluster) -> tuple[tuple[int, int], ...]:
    """The (width, target) of each piece of a pinned table, widest first; UsageError if it cannot be run."""
    try:
        check_placement(placement, table, cluster)
    except PlanMismatch as error:
        raise UsageError(f"the rules pin a table to what cannot be run: {error}") from None
    targets = placement.kind.targets(placement.ranks, cluster)
    widths = placement.widths_of(table.embedding_dim)
    return tuple(sorted(zip(widths, targets, strict=True), key=lambda each: (-each[0], each[1])))


def _close(open_: Bools, rules: tuple[TableRule, ...], cluster: Cluster) -> None:
    """Close the ranks (W,) that rules for one table exclude."""
    rank = np.arange(cluster.world_size)
    host = rank // cluster.local_world_size
    for rule in rules:
        if rule.ranks is not None:
            open_ &= np.isin(rank, rule.ranks)
        if rule.hosts is not None:
            open_ &= np.isin(host, rule.hosts)
        open_ &= ~np.isin(rank, rule.not_ranks or ()) & ~np.isin(host, rule.not_hosts or ())
        if rule.pin is not None:
            open_ &= np.isin(rank, rule.pin.ranks)


NO_LIMITS = TableLimits()
