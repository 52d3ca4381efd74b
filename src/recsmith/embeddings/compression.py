"""Which tables are stored smaller, and how: rules of a run, worked out into a transform for each table.

compression:
- {tables: "*", above_rows: 200, method: quotient_remainder, factor: 4}
- {tables: "user_*", method: "my_package.storing:Rounded", arguments: {step: 8}}

A method is a class that owns what it reads of a rule, and what it makes of a table (StorageMethod). RecSmith's are
registered here by name; one of yours is named by its place, and examples/tables_stored_your_way.py is one.
"""

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

Operation = Literal["multiply", "add", "concat", "generate"]
Maps = Callable[[str], Mapping[str, IdMap]]  # reads a file of maps, once


class LogicalTable(NamedTuple):
    """A table that a rule may store smaller, with its rows and columns."""

    name: str
    num_embeddings: int
    embedding_dim: int


@record
class Dial:
    """The field of a rule by which a method makes tables smaller, from `low` (as they are) to `high`.

    by_ratio: the middle of two values is their geometric mean. whole: values are whole numbers.
    """

    field: str
    low: float
    high: float
    by_ratio: bool = False
    whole: bool = False

    def between(self, low: float, high: float) -> float:
        """The middle of two values."""
        middle = (low * high) ** 0.5 if self.by_ratio else (low + high) / 2
        return float(round(middle)) if self.whole else middle


class StorageMethod(Protocol):
    """A way to store tables smaller: one is made for each rule, and asked about each table that the rule fits.

    reads: fields of a rule beside method, tables and above_rows. dial: which of them a target decides; None: none.
    from_data: 'module:function' that makes rules out of a run's data, of a method of one's own; '' where they do not
    matter. A method of one's own takes more arguments, which a rule gives by `arguments`.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    dial: ClassVar[Dial | None] = None
    from_data: ClassVar[str] = ""
    rule: "CompressionRule"
    tables: Sequence[LogicalTable]
    maps: Maps

    def __init__(self, rule: "CompressionRule", tables: Sequence[LogicalTable], maps: Maps) -> None:
        """rule: whose fields it takes. tables: all of a model. maps: reads a file of id maps."""
        self.rule, self.tables, self.maps = rule, tables, maps

    @classmethod
    def problems(cls, rule: "CompressionRule") -> Sequence[str | None]:  # noqa: ARG003 (of methods that ask it)
        """What is wrong with a rule, in words; None for a rule that is kept."""
        return ()

    def transform(self, table: LogicalTable) -> EmbeddingTransform | None:
        """How a table is stored; None: as it is.

        Raises:
            UsageError: it cannot be stored so.
        """
        ...


@noun
class CompressionRule:
    """How some tables are stored smaller; the first rule that fits a table counts.

    tables: names, with * and ? as in a shell. above_rows: smaller tables stay whole. method: hash, learned_hash: factor
    times fewer rows; quotient_remainder: factor ids share a quotient; mixed_radix, chinese_remainder: `count` tables of
    about the same number of rows; path_based: factor times fewer rows, and a network of `hidden` columns for each of
    the ids that share one; mixed_dimension: narrower rows; truncated: the first columns, without a projection; or
    'module:Class' of yours, with its `arguments`. factor: by which a table becomes smaller. count: of tables that one
    becomes, where it becomes several. operation, max_bag: of compositional methods (Compositional). hidden: columns of
    path_based's networks. temperature: of mixed dimension by the power rule, one width for each table. shares, widths:
    instead, of each table the shares of ids by falling popularity, and the columns of each; truncated takes one width.
    rows: of truncated, the share of rows that is kept. maps: file of the id maps that learned_hash takes, and
    mixed_dimension with shares (docs/compress.md). arguments: of a class of yours.
    """

    method: str
    tables: str = "*"
    above_rows: int = 200  # of the reference code of both papers
    factor: float = 4.0
    count: int = 2
    operation: Operation = "multiply"
    max_bag: int = 1
    hidden: int = 16
    temperature: float = 0.3  # of the reference code
    shares: tuple[float, ...] = ()
    widths: tuple[int, ...] = ()
    rows: float = 1.0
    maps: str | None = None
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check the values, and what the method needs; a class of yours is not imported before tables are stored."""
        check_rules(
            None if self.factor > 1 else f"factor is {self.factor:g}; a table becomes smaller by a factor above 1",
            None if self.count > 1 else f"count is {self.count}; 2 or more tables",
            None if self.above_rows >= 0 else f"above_rows is {self.above_rows}; 0 or more",
            *(() if ":" in self.method else self.problems()),
        )

    def problems(self) -> list[str | None]:
        """What the method finds wrong, and which fields were set that it does not read."""
        method = method_of(self.method)
        return [*method.problems(self), *(self._unread(field, method) for field in fields_read())]

    def _unread(self, field: str, method: type[StorageMethod]) -> str | None:
        """What to say of a field that was set and that the method does not read."""
        value = getattr(self, field)
        if field in method.reads or value == type(self).__dataclass_fields__[field].default:
            return None
        readers = ", ".join(name for name in known(METHOD) if field in method_of(name).reads)
        return f"{field} is {value}, and {self.method} does not read it; leave it out ({field} is for {readers})"

    def fits(self, table: LogicalTable) -> bool:
        """Whether the rule is for a table."""
        return fits(self.tables, table.name) and table.num_embeddings > self.above_rows


def method_of(name: str) -> type[StorageMethod]:
    """The class of a method's name, or of 'module:Class'.

    Raises:
        UsageError: none is called so.
    """
    return cast(type[StorageMethod], find(METHOD, name))


def methods_with_dials() -> list[str]:
    """Names of the methods that a target of size decides, in their order."""
    return [name for name in known(METHOD) if method_of(name).dial is not None]


def shown_fields(rule: CompressionRule, among: Sequence[str]) -> dict[str, Any]:
    """Some of a rule's fields, those without that its method does not read."""
    unread = set(fields_read()) - set(method_of(rule.method).reads)
    return {name: getattr(rule, name) for name in among if name not in unread}


def fields_read() -> list[str]:
    """Fields of a rule that only some methods read, in the order of the rule."""
    read = {field for name in known(METHOD) for field in method_of(name).reads}
    return [field for field in CompressionRule.__dataclass_fields__ if field in read]


def transforms_of(
    rules: Sequence[CompressionRule], tables: Sequence[LogicalTable], unpooled: Collection[str] = ()
) -> dict[str, EmbeddingTransform]:
    """The transform of each table that a rule fits and that it does not leave whole, by name.

    unpooled: names of tables whose rows are not pooled.

    Raises:
        UsageError: a table cannot be stored so, its map is missing or another table's, or a method cannot be loaded.
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
    """The map of a table in the file that a rule names."""
    found = maps(rule.maps) if rule.maps else {}
    if table.name not in found:
        raise UsageError(f"'{rule.maps}' has no map of it; make the maps again for these tables")
    return found[table.name]


def needs_maps(rule: CompressionRule) -> str | None:
    """What to say of a rule whose method takes id maps and that names no file of them."""
    if rule.maps:
        return None
    return f"{rule.method} needs `maps`, a file of id maps (docs/compress.md says how to make it)"
