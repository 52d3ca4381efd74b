"""What a search may choose from, and what it must keep: the words that travel with every bound."""

from fnmatch import fnmatchcase
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import Raw, Source, check_schema, decode, did_you_mean, encode, parse, read_text, source_text
from recsmith.plans.plan import wrong_load_factor
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, UVM_CACHING, WIDTH_STEP
from recsmith.sharding.memory import CACHE_LOAD_FACTOR

CONSTRAINTS_SCHEMA = "recsmith/constraints/1"
LARGEST_WIDTH = 65_536  # columns of the widest table that can be planned
CACHE_FACTORS = (0.05, 0.1, 0.2, 0.5)  # CACHE_LOAD_FACTOR, TorchRec's only one, and some that weigh less or miss less


def _wrong_words(words: tuple[str, ...] | None, known: tuple[str, ...], what: str) -> str | None:
    if words is None:
        return None
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        return f"no {what} is called '{unknown}'{did_you_mean(unknown, list(known))}"
    return None if words else f"at least one {what} must be allowed; known: {', '.join(known)}"


def _wrong_width(width: int | None, table: str) -> str | None:
    if width is None or WIDTH_STEP <= width <= LARGEST_WIDTH:
        return None
    limits = f"at least {WIDTH_STEP} and at most {LARGEST_WIDTH:,} columns"
    return f"min_width of rule '{table}' is {width}; it must be {limits}"


def _wrong_factors(factors: tuple[float, ...] | None) -> str | None:
    if factors == ():
        return f"at least one cache factor must be allowed, such as {CACHE_LOAD_FACTOR}"
    return next(filter(None, (wrong_load_factor(factor) for factor in factors or ())), None)


@noun
class Space:
    """The placements that a search chooses from.

    types: sharding types. kernels: compute kernels (data_parallel runs only 'dense', all others never do).
    widths: 'any' (every split of the columns into multiples of 4) or 'torchrec' (the one width that TorchRec's planner
        proposes: the smallest divisor of the dim that is at least 128 and a multiple of 4).
    cache_factors: shares of a table's rows that fused_uvm_caching may keep on the device; rules give tables their own.
        Without that kernel they say nothing, and stay what they are by default.
    """

    types: tuple[str, ...] = TYPE_NAMES
    widths: Literal["any", "torchrec"] = "any"
    kernels: tuple[str, ...] = ("fused", "dense")
    cache_factors: tuple[float, ...] = CACHE_FACTORS

    def __post_init__(self) -> None:
        """Check the words; keep them in the house order, once each."""
        check_rules(
            _wrong_words(self.types, TYPE_NAMES, "sharding type"),
            _wrong_words(self.kernels, KERNEL_NAMES, "compute kernel"),
            _wrong_factors(self.cache_factors),
        )
        object.__setattr__(self, "types", tuple(name for name in TYPE_NAMES if name in self.types))
        object.__setattr__(self, "kernels", tuple(name for name in KERNEL_NAMES if name in self.kernels))
        factors = tuple(sorted(set(self.cache_factors)))
        object.__setattr__(self, "cache_factors", factors if UVM_CACHING.name in self.kernels else CACHE_FACTORS)

    def describe(self) -> str:
        """A few words for a report."""
        types = "all types" if self.types == TYPE_NAMES else " + ".join(self.types)
        factors = ", ".join(f"{factor:g}" for factor in self.cache_factors)
        kernels = [f"{kernel} at {factors}" if kernel == UVM_CACHING.name else kernel for kernel in self.kernels]
        return f"{types}; widths {self.widths}; kernels {', '.join(kernels)}"


@noun
class TableRule:
    """What the tables whose name matches `tables` (a name or a pattern such as 'user_*') may use.

    min_width: no column piece narrower than this. cache_factors: instead of the space's.
    """

    tables: str
    sharding_types: tuple[str, ...] | None = None
    compute_kernels: tuple[str, ...] | None = None
    min_width: int | None = None
    cache_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Check the words."""
        check_rules(
            _wrong_words(self.sharding_types, TYPE_NAMES, "sharding type"),
            _wrong_words(self.compute_kernels, KERNEL_NAMES, "compute kernel"),
            _wrong_width(self.min_width, self.tables),
            _wrong_factors(self.cache_factors),
        )
        if self.cache_factors is not None:
            object.__setattr__(self, "cache_factors", tuple(sorted(set(self.cache_factors))))


@noun
class Rules:
    """A constraints file: rules for single tables."""

    rules: tuple[TableRule, ...]


@noun
class Constraints:
    """What a plan must keep.

    memory: the accounting that must fit: 'real' (what a job allocates) or 'torchrec' (its planner's estimate).
    rules: limits for single tables; all rules that match a table hold.
    keep_exact: train as the unsharded model would: no column splits under row-wise optimizers, where each column
        shard keeps a row statistic of its own.
    """

    memory: Literal["real", "torchrec"] = "real"
    rules: tuple[TableRule, ...] = ()
    keep_exact: bool = False

    def check_names(self, tables: list[str]) -> None:
        """Refuse rules that match no table: they are misspelt."""
        names = set(tables)
        for rule in self.rules:
            if rule.tables not in names and not any(fnmatchcase(name, rule.tables) for name in tables):
                raise UsageError(f"rule '{rule.tables}' matches no table{did_you_mean(rule.tables, tables)}")

    def rule_for(self, table: str) -> "TableRule | None":
        """All rules that match the table, as one; None if none does."""
        matching = [rule for rule in self.rules if rule.tables == table or fnmatchcase(table, rule.tables)]
        if not matching:
            return None
        types = [set(rule.sharding_types) for rule in matching if rule.sharding_types is not None]
        kernels = [set(rule.compute_kernels) for rule in matching if rule.compute_kernels is not None]
        widths = [rule.min_width for rule in matching if rule.min_width is not None]
        factors = [rule.cache_factors for rule in matching if rule.cache_factors is not None]
        allowed = tuple(name for name in TYPE_NAMES if all(name in names for names in types))
        runnable = tuple(name for name in KERNEL_NAMES if all(name in names for names in kernels))
        cached = tuple(each for each in factors[0] if all(each in others for others in factors)) if factors else None
        if not allowed or not runnable or cached == ():
            what = "cache factor" if cached == () else "sharding type or kernel"
            raise UsageError(f"the rules for table '{table}' leave it no {what}; relax one of them")
        return TableRule(
            tables=table, sharding_types=allowed, compute_kernels=runnable, min_width=max(widths, default=None),
            cache_factors=cached,
        )  # fmt: skip


def constraints_to_raw(space: Space, constraints: Constraints) -> Raw:
    """Plain data of a space and constraints, as a plan keeps it: every word written out."""
    raw: Raw = {"types": list(space.types), "widths": space.widths, "kernels": list(space.kernels)}
    if UVM_CACHING.name in space.kernels:
        raw["cache_factors"] = list(space.cache_factors)
    raw["memory"] = constraints.memory
    if constraints.keep_exact:
        raw["keep_exact"] = True
    if constraints.rules:
        raw["rules"] = encode(constraints)["rules"]
    return raw


def constraints_from_raw(raw: Raw, source: str) -> tuple[Space, Constraints]:
    """The space and constraints that a plan was made under."""
    space = {key: raw[key] for key in ("types", "widths", "kernels", "cache_factors") if key in raw}
    rest = {key: value for key, value in raw.items() if key not in space}
    return decode(Space, space, source), decode(Constraints, rest, source)


def load_constraints(source: Constraints | Source) -> Constraints:
    """The constraints of a YAML or JSON file of schema recsmith/constraints/1, which lists `rules` ('-' is stdin).

    Constraints are taken as they are.

    Raises:
        UsageError: the file cannot be read; CorruptFile where it holds no constraints.
    """
    if isinstance(source, Constraints):
        return source
    source = source_text(source, "Constraints")
    raw = check_schema(parse(read_text(source), source), CONSTRAINTS_SCHEMA, source)
    return Constraints(rules=decode(Rules, raw, source).rules)
