"""What a search may choose from: its space, which is stored with every bound, column splits, and rules for tables.

table_limits.py derives what rules leave to each table.

Legend: a split is a tuple of (width, count) pairs, widest first, of at most two different widths.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules, outside
from recsmith.files import did_you_mean
from recsmith.plans import Cache, Placement
from recsmith.plans.plan import CachePolicy, wrong_load_factor
from recsmith.sharding import CACHED_KERNELS, HOST_KERNELS, KERNEL_NAMES, KEY_VALUE, TYPE_NAMES, WIDTH_STEP
from recsmith.sharding.memory import CACHE_LOAD_FACTOR

LARGEST_WIDTH = 65_536  # columns of the widest table that can be planned
# CACHE_LOAD_FACTOR, TorchRec's only one, and some that take less memory or miss less
CACHE_FACTORS = (0.05, 0.1, 0.2, 0.5)
Split = tuple[tuple[int, int], ...]

TORCHREC_MIN_PARTITION = 128  # MIN_CW_DIM of torchrec/distributed/planner/constants.py
KERNEL_BLOCKS = (128, 64, 32)  # widths at which FBGEMM's kernels change their thread layout
DENSE_COUNTS = 8  # all numbers of pieces up to this are tried; above, four per doubling
MOST_ALIKE = 3  # most pieces of equal width that a fine split has next to one of another width
SPACE_WORDS = {  # texts for the parts of a bound's space
    "all types": f"all {len(TYPE_NAMES)} sharding types",
    "widths any": "any column width",
    "widths torchrec": "TorchRec's one column width",
    "kernels fused, dense": "tables in device memory",
    "memory real": "",
    "memory torchrec": "TorchRec's accounting of memory",
    "keep_exact": "no column splits under row-wise optimizers",
}
FINE_STEP = 8  # columns by which fine splits differ: a 32-byte sector of memory in fp32


def wrong_names(names: tuple[str, ...] | None, known: tuple[str, ...], what: str) -> str | None:
    """Message for a list of names of which one is unknown; None if all are known."""
    if names is None:
        return None
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        return f"no {what} is called '{unknown}'{did_you_mean(unknown, list(known))}"
    return None if names else f"at least one {what} must be allowed; known: {', '.join(known)}"


def wrong_factors(factors: tuple[float, ...] | None) -> str | None:
    """Message for invalid cache factors; None if they are valid."""
    if factors == ():
        return f"at least one cache factor must be allowed, such as {CACHE_LOAD_FACTOR}"
    return next(filter(None, (wrong_load_factor(factor) for factor in factors or ())), None)


@noun
class Space:
    """The placements that a search can choose from.

    types: sharding types.
    kernels: compute kernels (data_parallel runs only 'dense', all others never do).
    widths: 'any' (every split of the columns into multiples of 4) or 'torchrec' (the one width that TorchRec's planner
        proposes: the smallest divisor of the dim that is at least 128 and a multiple of 4).
    cache_factors: shares of a table's rows that fused_uvm_caching and key_value may cache on the device; rules may set
        others for single tables. Without those kernels they are unused and reset to the default.
    cache_policy: which rows the caches of tables on disk keep (Cache.policy); lru without such tables.
    """

    types: tuple[str, ...] = TYPE_NAMES
    widths: Literal["any", "torchrec"] = "any"
    kernels: tuple[str, ...] = ("fused", "dense")
    cache_factors: tuple[float, ...] = CACHE_FACTORS
    cache_policy: CachePolicy = "lru"

    def __post_init__(self) -> None:
        check_rules(
            wrong_names(self.types, TYPE_NAMES, "sharding type"),
            wrong_names(self.kernels, KERNEL_NAMES, "compute kernel"),
            wrong_factors(self.cache_factors),
            _two_tiers(self.kernels),
        )
        object.__setattr__(self, "types", tuple(name for name in TYPE_NAMES if name in self.types))
        object.__setattr__(self, "kernels", tuple(name for name in KERNEL_NAMES if name in self.kernels))
        factors = tuple(sorted(set(self.cache_factors)))
        object.__setattr__(self, "cache_factors", factors if self.has_caches else CACHE_FACTORS)
        object.__setattr__(self, "cache_policy", self.cache_policy if self.on_disk else "lru")

    @property
    def has_caches(self) -> bool:
        """Whether some kernel caches rows on the device."""
        return bool(set(self.kernels) & set(CACHED_KERNELS))

    @property
    def on_disk(self) -> bool:
        """Whether tables may be on disk; the memory beneath device memory is then the disk, else host memory."""
        return KEY_VALUE.name in self.kernels

    def describe(self) -> str:
        """Short text for a report."""
        types = "all types" if self.types == TYPE_NAMES else " + ".join(self.types)
        factors = ", ".join(f"{factor:g}" for factor in self.cache_factors)
        factors += " (static)" if self.cache_policy == "static" else ""
        kernels = [f"{kernel} at {factors}" if kernel in CACHED_KERNELS else kernel for kernel in self.kernels]
        return f"{types}; widths {self.widths}; kernels {', '.join(kernels)}"

    @property
    def words(self) -> str:
        """The space in plain words, for messages."""
        return space_words(self.describe())


def _two_tiers(kernels: tuple[str, ...]) -> str | None:
    """Message for kernels that need two kinds of memory beneath device memory; None if they need at most one."""
    hosted = next((name for name in HOST_KERNELS if name in kernels), None)
    if hosted is None or KEY_VALUE.name not in kernels:
        return None
    return f"kernels {hosted} and {KEY_VALUE.name}: a plan has one memory beneath its devices'; leave one of them out"


def space_words(space: str) -> str:
    """The space of a bound in plain words; unknown parts are kept as they are."""
    return ", ".join(text for piece in space.split("; ") if (text := SPACE_WORDS.get(piece, piece)))


def torchrec_width(dim: int, min_partition: int | None = None) -> int:
    """The one column width that TorchRec's planner proposes: _find_base_dim in distributed/sharding_plan.py."""
    candidates = range(min_partition or TORCHREC_MIN_PARTITION, dim)
    return next((width for width in candidates if dim % width == 0 and width % WIDTH_STEP == 0), dim)


def piece_counts(least: int, most: int) -> list[int]:
    """Numbers of pieces worth trying between two limits: all small ones, then four per doubling."""
    counts = set(range(least, min(most, DENSE_COUNTS) + 1)) | {most}
    octave = DENSE_COUNTS
    while octave < most:
        counts |= {octave * quarter // 4 for quarter in (5, 6, 7, 8)}
        octave *= 2
    return sorted(count for count in counts if least <= count <= most)


@cache
def column_splits(
    dim: int, least: int, most: int, rule: str, min_width: int | None, *, equal: bool = False, fine: bool = False
) -> tuple[Split, ...]:
    """The splits of `dim` columns into `least` .. `most` pieces that a search tries.

    rule: 'torchrec' is the one width of its planner. 'any' is, for each count, the most even split, and splits that
        follow the blocks of the kernels (such as 128 + 64 for 192 columns). Bounds cover every split, not only these.
    equal: all splits into pieces of one width, and no others. fine: also up to MOST_ALIKE pieces of any width and a
        remainder.
    """
    if rule == "torchrec":
        width = torchrec_width(dim, min_width)
        return (((width, dim // width),),) if least <= dim // width <= most else ()
    if equal:
        splits = [_even(dim, count) for count in range(least, most + 1) if dim % (count * WIDTH_STEP) == 0]
    else:
        splits = [_even(dim, count) for count in piece_counts(least, most)]
        splits += [_blocks(dim, block, dim // block) for block in KERNEL_BLOCKS if block < dim and dim % block]
        splits += [_blocks(dim, width, count) for count, width in _fine(dim)] if fine else []
    fitting = (split for split in splits if split[-1][0] >= min(min_width or WIDTH_STEP, dim))
    legal = {split for split in fitting if least <= sum(count for _, count in split) <= most}
    return tuple(sorted(legal, key=lambda split: (sum(count for _, count in split), split)))


def _even(dim: int, count: int) -> Split:
    base, extra = divmod(dim // WIDTH_STEP, count)
    pairs = ((WIDTH_STEP * (base + 1), extra), (WIDTH_STEP * base, count - extra))
    return tuple(pair for pair in pairs if pair[1])


def _blocks(dim: int, block: int, count: int) -> Split:
    """`count` blocks and a remainder of another width, widest first."""
    pairs = ((block, count), (dim - block * count, 1))
    return pairs if pairs[0] > pairs[1] else pairs[::-1]


def _fine(dim: int) -> list[tuple[int, int]]:
    """(count, width) of equal pieces that leave a remainder of another width."""
    widths = range(FINE_STEP, dim, FINE_STEP)
    return [(n, width) for n in range(1, MOST_ALIKE + 1) for width in widths if dim > n * width != dim - width]


# --- rules for single tables -----------------------------------------------------------------------------------------


class NoChoiceLeft(UsageError):
    """The rules for a table leave it no placement."""


LARGEST_COUNT = 2**31  # largest number of shards or tables; more are taken for a mistake


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
    """Message for an invalid maximum; None if it is valid."""
    return outside(field, count, 1, LARGEST_COUNT)


@noun
class Pin:
    """A placement that a table must have: as in a plan, without the table's name."""

    sharding_type: str
    ranks: tuple[int, ...]
    compute_kernel: str = "fused"
    widths: tuple[int, ...] = ()
    cache: Cache | None = None

    def __post_init__(self) -> None:
        check_rules(
            wrong_names((self.sharding_type,), TYPE_NAMES, "sharding type"),
            wrong_names((self.compute_kernel,), KERNEL_NAMES, "compute kernel"),
        )
        if self.cache is None and self.compute_kernel in CACHED_KERNELS:
            object.__setattr__(self, "cache", Cache(load_factor=CACHE_LOAD_FACTOR))

    def placement(self, table: str) -> Placement:
        """The placement of this table by the pin."""
        return Placement(
            table=table, sharding_type=self.sharding_type, compute_kernel=self.compute_kernel, ranks=self.ranks,
            widths=self.widths, cache=self.cache,
        )  # fmt: skip

    @classmethod
    def of(cls, placement: Placement) -> "Pin":
        """The pin that keeps a placement as it is."""
        return cls(
            sharding_type=placement.sharding_type, compute_kernel=placement.compute_kernel, ranks=placement.ranks,
            widths=placement.widths, cache=placement.cache,
        )  # fmt: skip


@noun
class TableRule:
    """Limits for the tables whose name matches `tables` (a name or a pattern such as 'user_*').

    min_width: no column piece is narrower than this.
    widths: column pieces have only these widths.
    cache_factors: replace those of the space.
    max_shards: the most shards of a table; a shard is the part of a piece on one rank.
    ranks, hosts: shards are only on these.
    not_ranks, not_hosts: no shard is on these.
    pin: the exact placement.
    optional: `tables` is a name, not a pattern, and there may be no such table.
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
        numbers = (_wrong_numbers(getattr(self, name), name, self.tables) for name in PLACES)
        check_rules(
            wrong_names(self.sharding_types, TYPE_NAMES, "sharding type"),
            wrong_names(self.compute_kernels, KERNEL_NAMES, "compute kernel"),
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
        """The names or patterns of the tables that the rule limits."""
        return (self.tables,)


PLACES = ("ranks", "not_ranks", "hosts", "not_hosts")


def kernels_of(space: Space, rule: TableRule | None) -> tuple[str, ...]:
    """The kernels that a table may have: those named by its rules, even outside the space, else those of the space."""
    return space.kernels if rule is None or rule.compute_kernels is None else rule.compute_kernels


def types_of(space: Space, rule: TableRule | None) -> tuple[str, ...]:
    """The sharding types of the space that a table's rules allow."""
    return tuple(each for each in space.types if rule is None or each in (rule.sharding_types or ()))


def opened_space(space: Space, rules: Mapping[str, TableRule | None]) -> Space:
    """The space with the kernels that rules name for their tables; rules by table.

    Raises:
        UsageError: the kernels need two kinds of memory beneath device memory.
    """
    named = {kernels_of(space, rule): None for rule in rules.values()}
    return replace(space, kernels=tuple(dict.fromkeys((*space.kernels, *(each for names in named for each in names)))))
