"""Rules of which tables a run compresses and how, and the transforms of tables that follow from the rules.

compression:
- {tables: "*", above_rows: 200, method: quotient_remainder, factor: 4}
- {tables: "user_*", method: "my_package.storing:Rounded", arguments: {step: 8}}

A method is a class (StorageMethod), which defines the fields of a rule that it reads, and the transform of a table.
RecSmith's methods are registered here by name. Your own method is named as 'module:Class';
examples/tables_stored_your_way.py shows one.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

from recsmith._components import find, known, make, register
from recsmith._types import noun, record
from recsmith.embeddings.id_by_id import IdById
from recsmith.embeddings.id_maps import IdMap, load_maps
from recsmith.embeddings.transforms import EmbeddingTransform
from recsmith.errors import UsageError, check_rules
from recsmith.workloads.patterns import fits

METHOD = "compression method"
register(METHOD, "hash", "recsmith.embeddings.hashing:Hash")
register(METHOD, "learned_hash", "recsmith.embeddings.hashing:LearnedHash")
register(METHOD, "quotient_remainder", "recsmith.embeddings.compositional:QuotientRemainder")
register(METHOD, "mixed_dimension", "recsmith.embeddings.mixed_dimension:MixedDimensions")
register(METHOD, "mixed_radix", "recsmith.embeddings.compositional:MixedRadix")
register(METHOD, "chinese_remainder", "recsmith.embeddings.compositional:ChineseRemainder")
register(METHOD, "path_based", "recsmith.embeddings.path_based:Paths")
register(METHOD, "truncated", "recsmith.embeddings.truncated:TruncatedTables")

MOST_TABLES = 64  # tables that replace one: two rows in each tell more ids apart than any table has
MOST_BAG = 10_000  # ids of a bag that are looked up one by one, each by a feature of its own

Operation = Literal["multiply", "add", "concat", "generate"]
Maps = Callable[[str], Mapping[str, IdMap]]  # loads a file of id maps; cached


class LogicalTable(NamedTuple):
    """A table that a rule may compress: its name, rows and columns."""

    name: str
    num_embeddings: int
    embedding_dim: int


@record
class Dial:
    """The rule field that controls how much a method compresses, from `low` (not at all) to `high`.

    by_ratio: whether bisection takes the geometric mean of two values. whole: whether values are whole numbers.
    """

    field: str
    low: float
    high: float
    by_ratio: bool = False
    whole: bool = False

    def between(self, low: float, high: float) -> float:
        """The middle of two values, for bisection."""
        middle = (low * high) ** 0.5 if self.by_ratio else (low + high) / 2
        return float(round(middle)) if self.whole else middle


class StorageMethod(Protocol):
    """A compression method: one object is made per rule, and `transform` is called for each table that the rule fits.

    reads: fields of a rule that the method uses, besides method, tables and above_rows. dial: the field that a target
    size decides; None: none. from_data: for your own method, the 'module:function' that makes rules from a run's data;
    '' if rules do not depend on data. The class of your own method may take further arguments, which a rule passes in
    `arguments`.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    dial: ClassVar[Dial | None] = None
    from_data: ClassVar[str] = ""
    rule: "CompressionRule"
    tables: Sequence[LogicalTable]
    maps: Maps

    def __init__(self, rule: "CompressionRule", tables: Sequence[LogicalTable], maps: Maps) -> None:
        """Store the rule, all tables of the model, and the loader of id maps."""
        self.rule, self.tables, self.maps = rule, tables, maps

    @classmethod
    def problems(cls, rule: "CompressionRule") -> Sequence[str | None]:  # noqa: ARG003 (of methods that ask it)
        """Error texts about a rule's fields; entries of None are ignored."""
        return ()

    def transform(self, table: LogicalTable) -> EmbeddingTransform | None:
        """How a table is stored; None: unchanged.

        Raises:
            UsageError: the table cannot be stored with this method.
        """
        ...


@noun
class CompressionRule:
    """How some tables are compressed; for each table the first rule that fits it is used.

    tables: name pattern, with * and ? as in a shell. above_rows: only tables with more rows are compressed. method:
    hash, learned_hash: `factor` times fewer rows; quotient_remainder: `factor` ids share a quotient; mixed_radix,
    chinese_remainder: `count` tables of about equally many rows; path_based: `factor` times fewer rows, and a network
    of `hidden` columns for each of the ids that share a row; mixed_dimension: narrower rows; truncated: only the first
    columns, without a projection; or your own 'module:Class', with its `arguments`. factor: how many times smaller a
    table becomes. count: number of tables that replace one. operation, max_bag: see Compositional. hidden: columns of
    the hidden layer of path_based's networks. temperature: exponent of mixed_dimension's power rule, which sets one
    width per table. shares, widths: instead, split each table's ids by falling popularity into blocks with these
    shares of the ids and these numbers of columns; truncated takes one width. rows: the share of rows that truncated
    keeps. maps: the file of id maps for learned_hash, or mixed_dimension with shares (docs/compress.md). arguments:
    arguments of your own class.
    """

    method: str
    tables: str = "*"
    above_rows: int = 200  # as in the reference code of both papers
    factor: float = 4.0
    count: int = 2
    operation: Operation = "multiply"
    max_bag: int = 1
    hidden: int = 16
    temperature: float = 0.3  # as in the reference code
    shares: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()
    rows: float = 1.0
    maps: str | None = None
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check values and the method's requirements; your own class is not imported until tables are compressed."""
        check_rules(
            None
            if 1 < self.factor < math.inf
            else f"factor is {self.factor:g}; a table becomes smaller by a factor above 1, and finite",
            None if 1 < self.count <= MOST_TABLES else f"count is {self.count:,}; 2 to {MOST_TABLES} tables",
            None if self.max_bag <= MOST_BAG else f"max_bag is {self.max_bag:,}; at most {MOST_BAG:,}",
            None if self.above_rows >= 0 else f"above_rows is {self.above_rows}; 0 or more",
            *(() if ":" in self.method else self.problems()),
        )

    def problems(self) -> list[str | None]:
        """Error texts of the method, and of fields that were set although the method does not read them."""
        method = method_of(self.method)
        return [*method.problems(self), *(self._unread(field, method) for field in fields_read())]

    def _unread(self, field: str, method: type[StorageMethod]) -> str | None:
        """The error text for a field that was set although the method does not read it; else None."""
        value = getattr(self, field)
        if field in method.reads or value == type(self).__dataclass_fields__[field].default:
            return None
        readers = ", ".join(name for name in known(METHOD) if field in method_of(name).reads)
        return f"{field} is {value}, and {self.method} does not read it; leave it out ({field} is for {readers})"

    def fits(self, table: LogicalTable) -> bool:
        """Whether the rule applies to a table, by its name and number of rows."""
        return fits(self.tables, table.name) and table.num_embeddings > self.above_rows


def method_of(name: str) -> type[StorageMethod]:
    """The class of a method, given by its name or as 'module:Class'.

    Raises:
        UsageError: there is no such method.
    """
    return cast(type[StorageMethod], find(METHOD, name))


def methods_with_dials() -> list[str]:
    """Names of the methods that can be tuned to a target size."""
    return [name for name in known(METHOD) if method_of(name).dial is not None]


def shown_fields(rule: CompressionRule, among: Sequence[str]) -> dict[str, Any]:
    """The values of the named fields of a rule, without fields that its method does not read."""
    unread = set(fields_read()) - set(method_of(rule.method).reads)
    return {name: getattr(rule, name) for name in among if name not in unread}


def fields_read() -> list[str]:
    """Names of the rule fields that only some methods read, in the order of the rule's fields."""
    read = {field for name in known(METHOD) for field in method_of(name).reads}
    return [field for field in CompressionRule.__dataclass_fields__ if field in read]


def transforms_of(
    rules: Sequence[CompressionRule], tables: Sequence[LogicalTable], unpooled: Collection[str] = ()
) -> dict[str, EmbeddingTransform]:
    """The transform of each table that the rules compress, by table name.

    unpooled: names of tables whose rows are not pooled.

    Raises:
        UsageError: a table cannot be stored as its rule says, its id map is missing or is another table's, or a method
            cannot be loaded.
    """
    maps, left = cache(load_maps), list(tables)
    made: dict[str, EmbeddingTransform] = {}
    for rule in rules:
        if ":" in rule.method:
            check_rules(*rule.problems())
        settings = {"name": rule.method, **(rule.arguments or {})}
        method: StorageMethod = make(METHOD, settings, rule, tables, maps, where="model.compression")
        for table in [table for table in left if rule.fits(table)]:
            left.remove(table)
            try:
                transform = method.transform(table)
                if transform is not None and table.name in unpooled:
                    transform = IdById(stored=transform)
            except UsageError as error:
                raise UsageError(f"table '{table.name}': {error}") from None
            if transform is not None:
                made[table.name] = transform
    return made


def map_of(rule: CompressionRule, table: LogicalTable, maps: Maps) -> IdMap:
    """The id map of a table, from the file that the rule names; UsageError if it has none."""
    found = maps(rule.maps) if rule.maps else {}
    if table.name not in found:
        raise UsageError(f"'{rule.maps}' has no map of it; make the maps again for these tables")
    return found[table.name]


def needs_maps(rule: CompressionRule) -> str | None:
    """The error text for a rule that names no file of id maps, of a method that needs one; else None."""
    if rule.maps:
        return None
    return f"{rule.method} needs `maps`, a file of id maps (docs/compress.md says how to make it)"
