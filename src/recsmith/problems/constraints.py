"""What a plan must keep, table by table and between tables: the nouns of a constraints file.

Rules for single tables restrict what they may choose from (table_limits.py); what is said of several tables together
is asked of whole plans (legality.py).
"""

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import did_you_mean
from recsmith.plans import Cache, Placement
from recsmith.problems.space import LARGEST_WIDTH, wrong_factors, wrong_words
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, UVM_CACHING, WIDTH_STEP
from recsmith.sharding.memory import CACHE_LOAD_FACTOR

Part = tuple[Literal["rules", "together", "apart", "per_rank"], int]  # a constraint: its list, and its place there


class NoChoiceLeft(UsageError):
    """The rules for a table leave it no placement at all."""


LARGEST_COUNT = 2**31  # of shards and tables: more are taken for a mistake


def _wrong_width(width: int | None, field: str, table: str) -> str | None:
    if width is None or WIDTH_STEP <= width <= LARGEST_WIDTH:
        return None
    limits = f"at least {WIDTH_STEP} and at most {LARGEST_WIDTH:,} columns"
    return f"{field} of rule '{table}' is {width}; it must be {limits}"


def _wrong_widths(widths: tuple[int, ...] | None, table: str) -> str | None:
    if widths == ():
        return f"widths of rule '{table}' is empty; name at least one width, such as 64"
    odd = next((width for width in widths or () if width % WIDTH_STEP), None)
    if odd is not None:
        return f"widths of rule '{table}' names {odd}; widths are multiples of {WIDTH_STEP}"
    return next(filter(None, (_wrong_width(width, "widths", table) for width in widths or ())), None)


def _wrong_numbers(numbers: tuple[int, ...] | None, field: str, table: str) -> str | None:
    if numbers == ():
        return f"{field} of rule '{table}' is empty; leave it out, or name at least one"
    least = min(numbers or (0,))
    return f"{field} of rule '{table}' names {least}; the first is 0" if least < 0 else None


def wrong_count(count: int | None, field: str) -> str | None:
    """What is wrong with a largest number; None where nothing is."""
    if count is None or 1 <= count <= LARGEST_COUNT:
        return None
    return f"{field} is {count}; it must be at least 1"


@noun
class Pin:
    """A placement that a table must have: as in a plan, without the table's name."""

    sharding_type: str
    ranks: tuple[int, ...]
    compute_kernel: str = "fused"
    widths: tuple[int, ...] = ()
    cache: Cache | None = None

    def __post_init__(self) -> None:
        """Check the words; write out the cache that FBGEMM makes where nothing is said."""
        check_rules(
            wrong_words((self.sharding_type,), TYPE_NAMES, "sharding type"),
            wrong_words((self.compute_kernel,), KERNEL_NAMES, "compute kernel"),
        )
        if self.cache is None and self.compute_kernel == UVM_CACHING.name:
            object.__setattr__(self, "cache", Cache(load_factor=CACHE_LOAD_FACTOR))

    def placement(self, table: str) -> Placement:
        """The placement of this table."""
        return Placement(
            table=table, sharding_type=self.sharding_type, compute_kernel=self.compute_kernel, ranks=self.ranks,
            widths=self.widths, cache=self.cache,
        )  # fmt: skip

    @classmethod
    def of(cls, placement: Placement) -> "Pin":
        """What keeps a placement as it is."""
        return cls(
            sharding_type=placement.sharding_type, compute_kernel=placement.compute_kernel, ranks=placement.ranks,
            widths=placement.widths, cache=placement.cache,
        )  # fmt: skip


@noun
class TableRule:
    """What the tables whose name matches `tables` (a name or a pattern such as 'user_*') may use.

    min_width: no column piece narrower than this. widths: column pieces only as wide as one of these. cache_factors:
    instead of the space's. max_shards: the most shards of a table, where a shard is what one rank holds of a piece.
    ranks, hosts: only there; not_ranks, not_hosts: nowhere there. pin: exactly so. optional: it may match no table.
    """

    tables: str
    sharding_types: tuple[str, ...] | None = None
    compute_kernels: tuple[str, ...] | None = None
    min_width: int | None = None
    cache_factors: tuple[float, ...] | None = None
    widths: tuple[int, ...] | None = None
    max_shards: int | None = None
    ranks: tuple[int, ...] | None = None
    not_ranks: tuple[int, ...] | None = None
    hosts: tuple[int, ...] | None = None
    not_hosts: tuple[int, ...] | None = None
    pin: Pin | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        """Check the words."""
        numbers = (_wrong_numbers(getattr(self, name), name, self.tables) for name in PLACES)
        check_rules(
            wrong_words(self.sharding_types, TYPE_NAMES, "sharding type"),
            wrong_words(self.compute_kernels, KERNEL_NAMES, "compute kernel"),
            _wrong_width(self.min_width, "min_width", self.tables),
            wrong_factors(self.cache_factors),
            _wrong_widths(self.widths, self.tables),
            wrong_count(self.max_shards, f"max_shards of rule '{self.tables}'"),
            *numbers,
        )
        for name in ("cache_factors", "widths", *PLACES):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(sorted(set(value))))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names or patterns of the tables that it speaks of."""
        return (self.tables,)


PLACES = ("ranks", "not_ranks", "hosts", "not_hosts")


def _wrong_names(names: tuple[str, ...], what: str) -> str | None:
    return None if names else f"{what} names no table; name tables, or patterns such as 'user_*'"


@noun
class Together:
    """Tables whose shards cover the same ranks or, per host, the same hosts."""

    tables: tuple[str, ...]
    per: Literal["rank", "host"] = "rank"

    def __post_init__(self) -> None:
        """Check the names."""
        check_rules(_wrong_names(self.tables, "together"))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names or patterns of the tables that it speaks of."""
        return self.tables


@noun
class Apart:
    """Tables of which no two have a shard on the same rank or, per host, on the same host."""

    tables: tuple[str, ...]
    per: Literal["rank", "host"] = "rank"

    def __post_init__(self) -> None:
        """Check the names."""
        check_rules(_wrong_names(self.tables, "apart"))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names or patterns of the tables that it speaks of."""
        return self.tables


@noun
class PerRank:
    """How many of these tables, or of their shards, a rank may hold at most."""

    tables: tuple[str, ...] = ("*",)
    max_tables: int | None = None
    max_shards: int | None = None

    def __post_init__(self) -> None:
        """Check the names and numbers."""
        nothing = self.max_tables is None and self.max_shards is None
        check_rules(
            _wrong_names(self.tables, "per_rank"),
            wrong_count(self.max_tables, "max_tables of per_rank"),
            wrong_count(self.max_shards, "max_shards of per_rank"),
            "per_rank limits nothing; say max_tables or max_shards" if nothing else None,
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names or patterns of the tables that it speaks of."""
        return self.tables


@noun
class Constraints:
    """What a plan must keep.

    memory: the accounting that must fit: 'real' (what a job allocates) or 'torchrec' (its planner's estimate).
    rules: limits for single tables; all rules that match a table hold.
    keep_exact: train as the unsharded model would: no column splits under row-wise optimizers, where each column
        shard keeps a row statistic of its own.
    together, apart, per_rank: what holds between tables. source: the file that they were read from, for messages.
    """

    memory: Literal["real", "torchrec"] = "real"
    rules: tuple[TableRule, ...] = ()
    keep_exact: bool = False
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    per_rank: tuple[PerRank, ...] = ()
    source: str = ""

    @property
    def between(self) -> tuple[Together | Apart | PerRank, ...]:
        """What holds between tables."""
        return (*self.together, *self.apart, *self.per_rank)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every constraint that could be left out, as (list, place)."""
        lists = ("rules", "together", "apart", "per_rank")
        return tuple((name, i) for name in lists for i in range(len(getattr(self, name))))

    def part(self, part: Part) -> TableRule | Together | Apart | PerRank:
        """The constraint at a place."""
        name, place = part
        return getattr(self, name)[place]

    def only(self, parts: tuple[Part, ...]) -> "Constraints":
        """The same memory and exactness with these constraints only."""
        kept = {name: tuple(self.part(part) for part in parts if part[0] == name) for name, _ in self.parts}
        fields = {"rules": (), "together": (), "apart": (), "per_rank": (), **kept}
        return Constraints(memory=self.memory, keep_exact=self.keep_exact, source=self.source, **fields)

    def check_names(self, tables: list[str]) -> None:
        """Refuse names and patterns that match no table: they are misspelt."""
        names = set(tables)
        for what, pattern in self._patterns():
            if pattern not in names and not any(fnmatchcase(name, pattern) for name in tables):
                raise UsageError(f"{what} '{pattern}' matches no table{did_you_mean(pattern, tables)}")

    def _patterns(self) -> Iterator[tuple[str, str]]:
        for name, _ in dict.fromkeys((name, 0) for name, _ in self.parts):
            what = "rule" if name == "rules" else name
            for each in getattr(self, name):
                if isinstance(each, TableRule) and each.optional:
                    continue
                yield from ((what, pattern) for pattern in each.patterns)

    def matching(self, tables: list[str]) -> "Constraints":
        """The same without optional rules that match no table."""
        known = set(tables)
        rules = tuple(rule for rule in self.rules if not rule.optional or rule.tables in known)
        return self if len(rules) == len(self.rules) else replace(self, rules=rules)

    def rules_of(self, table: str) -> tuple[TableRule, ...]:
        """All rules that match the table."""
        return tuple(rule for rule in self.rules if rule.tables == table or fnmatchcase(table, rule.tables))

    def rule_for(self, table: str) -> TableRule | None:
        """All rules that match the table, as one; None if none does. Places and pins are not asked."""
        matching = self.rules_of(table)
        if not matching:
            return None
        types = [set(rule.sharding_types) for rule in matching if rule.sharding_types is not None]
        kernels = [set(rule.compute_kernels) for rule in matching if rule.compute_kernels is not None]
        least = [rule.min_width for rule in matching if rule.min_width is not None]
        shards = [rule.max_shards for rule in matching if rule.max_shards is not None]
        factors = [rule.cache_factors for rule in matching if rule.cache_factors is not None]
        widths = [set(rule.widths) for rule in matching if rule.widths is not None]
        for rule in matching:
            if rule.pin is not None:
                types.append({rule.pin.sharding_type})
                kernels.append({rule.pin.compute_kernel})
                factors += [(rule.pin.cache.load_factor,)] if rule.pin.cache else []
        allowed = tuple(name for name in TYPE_NAMES if all(name in names for names in types))
        runnable = tuple(name for name in KERNEL_NAMES if all(name in names for names in kernels))
        cached = tuple(each for each in factors[0] if all(each in others for others in factors)) if factors else None
        wide = tuple(sorted(set.intersection(*widths))) if widths else None
        for left, what in (
            (allowed and runnable, "sharding type or kernel"),
            (cached, "cache factor"),
            (wide, "width"),
        ):
            if left == ():
                raise NoChoiceLeft(f"the rules for table '{table}' leave it no {what}; relax one of them")
        return TableRule(
            tables=table, sharding_types=allowed, compute_kernels=runnable, min_width=max(least, default=None),
            cache_factors=cached, widths=wide, max_shards=min(shards, default=None),
        )  # fmt: skip


def members(patterns: tuple[str, ...], tables: list[str]) -> list[int]:
    """The numbers of the tables that names or patterns match, in order."""
    exact = set(patterns)
    wild = [pattern for pattern in patterns if any(sign in pattern for sign in "*?[")]
    return [i for i, name in enumerate(tables) if name in exact or any(fnmatchcase(name, each) for each in wild)]


def told(constraints: Constraints, table: str) -> str:
    """What places, widths, pins and other tables say of a table, in words that put equal tables in a fixed order."""
    rules = sorted(repr(replace(rule, tables="")) for rule in constraints.rules_of(table) if _says_more(rule))
    between = [str(i) for i, each in enumerate(constraints.between) if members(each.patterns, [table])]
    return " ".join((*rules, *between))


def _says_more(rule: TableRule) -> bool:
    return any(getattr(rule, name) is not None for name in (*PLACES, "widths", "max_shards", "pin"))
