"""Rules for single tables: what they may choose from (table_limits.py says what that leaves them)."""

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.plans import Cache, Placement
from recsmith.problems.space import LARGEST_WIDTH, wrong_factors, wrong_words
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, UVM_CACHING, WIDTH_STEP
from recsmith.sharding.memory import CACHE_LOAD_FACTOR


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
