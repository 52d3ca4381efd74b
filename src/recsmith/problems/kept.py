"""Checks whether a plan keeps its constraints, exactly and on its placements, independently of the search.

Searches use Legality, which sees pieces as widths on ranks, not which columns they are. Plans are checked here once
more before they are returned.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from recsmith.clusters import Cluster
from recsmith.plans import Placement
from recsmith.problems.constraints import Apart, Constraints, PerRank, RulesByTable, Together, members
from recsmith.problems.space import TableRule
from recsmith.workloads import Table

SHOWN = 8  # most ranks that a message names


def broken_constraint(
    constraints: Constraints, placements: Sequence[Placement], tables: Sequence[Table], cluster: Cluster
) -> str | None:
    """The first constraint that placements break, as a sentence; None if they keep all.

    placements: of some or all tables; constraints between tables are checked for the placed ones.
    """
    return KeptRules(constraints, tables, cluster).broken(placements)


class KeptRules:
    """Constraints against which placements of some tables are checked, at once or table by table."""

    def __init__(self, constraints: Constraints, tables: Sequence[Table], cluster: Cluster) -> None:
        self._constraints, self._cluster = constraints, cluster
        self._dims = {table.name: table.embedding_dim for table in tables}
        self._by_table = RulesByTable(constraints.rules)

    def broken(self, placements: Sequence[Placement]) -> str | None:
        """The first constraint that placements break, as a sentence; None if they keep all."""
        constraints, cluster = self._constraints, self._cluster
        if not constraints.parts:
            return None
        for placed in placements:
            rules = self._by_table.of(placed.table)
            broken = next(
                (words for rule in rules for words in _by_itself(rule, placed, self._dims[placed.table], cluster)), None
            )
            if broken:
                return f"table '{placed.table}' {broken}"
        return next((words for each in constraints.between for words in _together(each, placements, cluster)), None)


def _by_itself(rule: TableRule, placed: Placement, dim: int, cluster: Cluster) -> Iterator[str]:
    """How a table breaks a rule for single tables, in words."""
    widths, ranks = placed.widths_of(dim), set(placed.ranks)
    hosts = {rank // cluster.local_world_size for rank in ranks}
    if rule.sharding_types is not None and placed.sharding_type not in rule.sharding_types:
        yield f"is {placed.sharding_type}; its rules allow {', '.join(rule.sharding_types)}"
    if rule.compute_kernels is not None and placed.compute_kernel not in rule.compute_kernels:
        yield f"runs {placed.compute_kernel}; its rules allow {', '.join(rule.compute_kernels)}"
    if rule.cache_factors is not None and placed.cache and placed.load_factor not in rule.cache_factors:
        yield f"caches {placed.load_factor:g} of its rows; its rules allow {', '.join(map(str, rule.cache_factors))}"
    if rule.min_width is not None and min(widths) < min(rule.min_width, dim):
        yield f"has a piece of {min(widths)} columns; its rules ask for {rule.min_width} at least"
    if rule.widths is not None and not set(widths) <= set(rule.widths):
        yield f"has pieces of {_listed(widths)} columns; its rules allow {_listed(rule.widths)}"
    if rule.max_shards is not None and len(placed.ranks) > rule.max_shards:
        yield f"has {len(placed.ranks)} shards; its rules allow {rule.max_shards}"
    for what, found, only, never in (
        ("rank", ranks, rule.ranks, rule.not_ranks),
        ("host", hosts, rule.hosts, rule.not_hosts),
    ):
        if (only is not None and not found <= set(only)) or found & set(never or ()):
            allowed = f"only {_listed(only)}" if only is not None else f"not {_listed(never or ())}"
            yield f"is on {what}s {_listed(sorted(found))}; its rules allow {allowed}"
    if rule.pin is not None:
        pinned = rule.pin.placement(placed.table)
        if (*_kind(pinned), pinned.ranks, pinned.widths_of(dim)) != (*_kind(placed), placed.ranks, widths):
            yield (
                f"is {placed.sharding_type} ({placed.compute_kernel}) on ranks {_listed(placed.ranks)} with widths "
                f"{_listed(widths)}; it is pinned to {pinned.sharding_type} ({pinned.compute_kernel}) on ranks "
                f"{_listed(pinned.ranks)} with widths {_listed(pinned.widths_of(dim))}"
            )


def _kind(placed: Placement) -> tuple[object, ...]:
    return placed.sharding_type, placed.compute_kernel, placed.cache


def _together(each: Together | Apart | PerRank, placements: Sequence[Placement], cluster: Cluster) -> Iterator[str]:
    """How several tables break a constraint between them, in words."""
    own = [placements[i] for i in members(each.patterns, [placed.table for placed in placements])]
    if isinstance(each, PerRank):
        for most, what, counted in (
            (each.max_tables, "tables", Counter(rank for placed in own for rank in set(placed.ranks))),
            (each.max_shards, "shards", Counter(rank for placed in own for rank in placed.ranks)),
        ):
            rank, number = max(counted.items(), key=lambda pair: (pair[1], -pair[0]), default=(0, 0))
            if most is not None and number > most:
                yield f"rank {rank} holds {number} {what} of {_listed(each.tables)}; per_rank allows {most}"
        return
    local = cluster.local_world_size if each.per == "host" else 1
    units = {placed.table: {rank // local for rank in placed.ranks} for placed in own}
    if isinstance(each, Together):
        first = next(iter(units), "")
        other = next((name for name, on in units.items() if on != units[first]), None)
        if other is not None:
            there = f"{_listed(sorted(units[first]))} and {_listed(sorted(units[other]))}"
            yield f"tables '{first}' and '{other}' are on {each.per}s {there}; together asks for the same"
        return
    held: dict[int, str] = {}
    for name, on in units.items():
        for unit in sorted(on):
            if held.setdefault(unit, name) != name:
                yield f"tables '{held[unit]}' and '{name}' are both on {each.per} {unit}; they must be apart"


def _listed(values: Sequence[object]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return "[" + ", ".join(map(str, values[:SHOWN])) + more + "]"
