"""The constraints that a plan must keep, for single tables and between tables: the nouns of a constraints file.

Rules for single tables restrict their choices (space.py); constraints on several tables are checked on whole plans
(legality.py).
"""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.problems.dense_bytes import Stashing
from recsmith.problems.space import PLACES, NoChoiceLeft, TableRule, wrong_count
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES
from recsmith.workloads.patterns import check_fit

# a constraint: the name of its list, and its index in the list
Part = tuple[Literal["rules", "together", "apart", "per_rank"], int]
LISTS = ("rules", "together", "apart", "per_rank")


def _no_names(names: tuple[str, ...], what: str) -> str | None:
    return None if names else f"{what} names no table; name tables, or patterns such as 'user_*'"


class _SeveralTables:
    """The common part of constraints between tables."""

    tables: tuple[str, ...]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names or patterns of the constrained tables."""
        return self.tables


@noun
class Together(_SeveralTables):
    """Tables whose shards must cover the same ranks or, per host, the same hosts."""

    tables: tuple[str, ...]
    per: Literal["rank", "host"] = "rank"

    def __post_init__(self) -> None:
        check_rules(_no_names(self.tables, "together"))


@noun
class Apart(_SeveralTables):
    """Tables of which no two may have a shard on the same rank or, per host, on the same host."""

    tables: tuple[str, ...]
    per: Literal["rank", "host"] = "rank"

    def __post_init__(self) -> None:
        check_rules(_no_names(self.tables, "apart"))


@noun
class PerRank(_SeveralTables):
    """The most of these tables, or of their shards, that a rank may hold."""

    tables: tuple[str, ...] = ("*",)
    max_tables: int | None = None
    max_shards: int | None = None

    def __post_init__(self) -> None:
        nothing = self.max_tables is None and self.max_shards is None
        check_rules(
            _no_names(self.tables, "per_rank"),
            wrong_count(self.max_tables, "max_tables of per_rank"),
            wrong_count(self.max_shards, "max_shards of per_rank"),
            "per_rank limits nothing; say max_tables or max_shards" if nothing else None,
        )


@noun
class Constraints:
    """The constraints that a plan must keep.

    memory: the accounting that must fit: 'real' (what a job allocates) or 'torchrec' (its planner's estimate).
    rules: limits for single tables; all rules that match a table hold.
    keep_exact: train as the unsharded model would: no column splits under row-wise optimizers, whose row statistics
        are separate in each column shard.
    together, apart, per_rank: constraints between tables.
    stash: that tables may be stashed in host memory, and the needs of dense layers.
    source: the file from which they were read, for messages.
    """

    memory: Literal["real", "torchrec"] = "real"
    rules: tuple[TableRule, ...] = ()
    keep_exact: bool = False
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    per_rank: tuple[PerRank, ...] = ()
    stash: Stashing | None = None
    source: str = ""

    @property
    def between(self) -> tuple[Together | Apart | PerRank, ...]:
        """All constraints between tables."""
        return (*self.together, *self.apart, *self.per_rank)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every constraint that could be left out, as (list, index)."""
        return tuple((name, i) for name in LISTS for i in range(len(getattr(self, name))))

    def part(self, part: Part) -> TableRule | Together | Apart | PerRank:
        """The constraint at an index of a list."""
        name, place = part
        return getattr(self, name)[place]

    def only(self, parts: tuple[Part, ...]) -> "Constraints":
        """The same memory accounting, exactness and stashing, with these constraints only."""
        kept: dict[str, Any] = {name: tuple(self.part(each) for each in parts if each[0] == name) for name in LISTS}
        return Constraints(memory=self.memory, keep_exact=self.keep_exact, stash=self.stash, source=self.source, **kept)

    def check_names(self, tables: list[str]) -> None:
        """Refuse names and patterns that match no table, because they are misspelt."""
        names = set(tables)
        for what, pattern in self._patterns():
            if pattern not in names:
                check_fit(what, (pattern,), tables)

    def _patterns(self) -> Iterator[tuple[str, str]]:
        for name, _ in dict.fromkeys((name, 0) for name, _ in self.parts):
            what = "rule" if name == "rules" else name
            for each in getattr(self, name):
                if isinstance(each, TableRule) and each.optional:
                    continue
                yield from ((what, pattern) for pattern in each.patterns)

    def matching(self, tables: list[str]) -> "Constraints":
        """The same constraints without optional rules that match no table."""
        known = set(tables)
        rules = tuple(rule for rule in self.rules if not rule.optional or rule.tables in known)
        return self if len(rules) == len(self.rules) else replace(self, rules=rules)


class RulesByTable:
    """The rules of each table, for fast look-up: many rules name one table each, such as the pins of a plan."""

    def __init__(self, rules: tuple[TableRule, ...]) -> None:
        self._rules = rules
        self._named: dict[str, list[int]] = {}
        for place, rule in enumerate(rules):
            self._named.setdefault(rule.tables, []).append(place)
        self._patterns = [i for i, rule in enumerate(rules) if not rule.optional and _is_pattern(rule.tables)]

    def of(self, table: str) -> tuple[TableRule, ...]:
        """All rules that match the table, in their order."""
        matching = {i for i in self._patterns if fnmatchcase(table, self._rules[i].tables)}
        return tuple(self._rules[i] for i in sorted(matching.union(self._named.get(table, ()))))

    def merged(self, table: str) -> TableRule | None:
        """All rules that match the table, merged into one; None if there are none. Ranks and hosts are left out.

        Raises:
            NoChoiceLeft: together, the rules leave the table no choice.
        """
        matching = self.of(table)
        if not matching:
            return None
        types = [set(rule.sharding_types) for rule in matching if rule.sharding_types is not None]
        kernels = [set(rule.compute_kernels) for rule in matching if rule.compute_kernels is not None]
        least = [rule.min_width for rule in matching if rule.min_width is not None]
        shards = [rule.max_shards for rule in matching if rule.max_shards is not None]
        factors = [rule.cache_factors for rule in matching if rule.cache_factors is not None]
        widths = [rule.widths for rule in matching if rule.widths is not None]
        for rule in matching:
            if rule.pin is not None:
                types.append({rule.pin.sharding_type})
                kernels.append({rule.pin.compute_kernel})
                factors += [(rule.pin.cache.load_factor,)] if rule.pin.cache else []
        allowed = tuple(name for name in TYPE_NAMES if all(name in names for names in types))
        runnable = tuple(name for name in KERNEL_NAMES if all(name in names for names in kernels)) if kernels else None
        cached = tuple(each for each in factors[0] if all(each in others for others in factors)) if factors else None
        wide = tuple(each for each in widths[0] if all(each in others for others in widths)) if widths else None
        for left, what in (
            (allowed and (KERNEL_NAMES if runnable is None else runnable), "sharding type or kernel"),
            (cached, "cache factor"),
            (wide, "width"),
        ):
            if left == ():
                raise NoChoiceLeft(f"the rules for table '{table}' leave it no {what}; relax one of them")
        return TableRule(
            tables=table, sharding_types=allowed, compute_kernels=runnable, min_width=max(least, default=None),
            cache_factors=cached, widths=wide, max_shards=min(shards, default=None),
        )  # fmt: skip


def _matches(pattern: str, table: str) -> bool:
    """Whether a pattern, not a plain name, matches; called for every rule and table, so plain names must be quick."""
    return _is_pattern(pattern) and fnmatchcase(table, pattern)


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def members(patterns: tuple[str, ...], tables: list[str]) -> list[int]:
    """The numbers of the tables that names or patterns match, in order."""
    exact = set(patterns)
    return [i for i, name in enumerate(tables) if name in exact or any(_matches(each, name) for each in patterns)]


def constraint_key(constraints: Constraints, rules: tuple[TableRule, ...], table: str) -> str:
    """The constraints on a table's ranks, widths, pins and partners as a text, which orders otherwise equal tables.

    rules: the rules that match the table.
    """
    fields = (*PLACES, "widths", "max_shards", "pin")
    relevant = [rule for rule in rules if any(getattr(rule, name) is not None for name in fields)]
    said = sorted(repr(replace(rule, tables="")) for rule in relevant)
    between = [str(i) for i, each in enumerate(constraints.between) if members(each.patterns, [table])]
    return " ".join((*said, *between))
