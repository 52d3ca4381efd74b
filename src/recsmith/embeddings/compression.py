"""Which tables are stored smaller, and how: rules of a run, worked out into a transform for each table.

compression:
- {tables: "*", above_rows: 200, method: quotient_remainder, factor: 4}
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import isqrt
from typing import Literal, Protocol

from recsmith._types import noun
from recsmith.embeddings.compositional import Compositional, Operation, balanced, coprime, quotient_remainder
from recsmith.embeddings.hashing import Hashing
from recsmith.embeddings.id_maps import IdMap, load_maps
from recsmith.embeddings.mixed_dimension import KERNEL_WIDTH, Block, MixedDimension
from recsmith.embeddings.parts import EmbeddingTransform
from recsmith.embeddings.path_based import PathBased
from recsmith.embeddings.power_rule import power_rule
from recsmith.errors import UsageError, check_rules

Method = Literal[
    "hash", "mixed_dimension", "quotient_remainder", "mixed_radix", "chinese_remainder", "path_based", "learned_hash"
]

COMPOSITIONAL: tuple[Method, ...] = ("quotient_remainder", "mixed_radix", "chinese_remainder")
METHODS_OF: dict[str, tuple[Method, ...]] = {  # fields of a rule that only some methods read
    "factor": ("hash", "learned_hash", "quotient_remainder", "path_based"),
    "count": ("mixed_radix", "chinese_remainder"),
    "operation": COMPOSITIONAL,
    "max_bag": (*COMPOSITIONAL, "path_based"),
    "hidden": ("path_based",),
    "temperature": ("mixed_dimension",),
    "shares": ("mixed_dimension",),
    "widths": ("mixed_dimension",),
    "maps": ("learned_hash", "mixed_dimension"),
}


class LogicalTable(Protocol):
    """What a rule asks of a table."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def num_embeddings(self) -> int:
        """Its rows."""
        ...


@noun
class CompressionRule:
    """How some tables are stored smaller; the first rule that fits a table counts.

    tables: names, with * and ? as in a shell. above_rows: smaller tables stay whole. method: hash, learned_hash: factor
    times fewer rows; quotient_remainder: factor ids share a quotient; mixed_radix, chinese_remainder: `count` tables of
    about the same number of rows; path_based: factor times fewer rows, and a network of `hidden` columns for each of
    the ids that share one; mixed_dimension: narrower rows. operation, max_bag: of compositional methods
    (Compositional). temperature: of mixed dimension by the power rule, one width for each table. shares, widths:
    instead, of each table the shares of ids by falling popularity, and the columns of each. maps: file of the id maps
    that learned_hash takes, and mixed_dimension with shares (docs/compress.md).
    """

    method: Method
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
    maps: str | None = None

    def __post_init__(self) -> None:
        """Check what each method needs."""
        blocks = self.method == "mixed_dimension" and bool(self.shares or self.widths)
        check_rules(
            None if self.factor > 1 else f"factor is {self.factor:g}; a table becomes smaller by a factor above 1",
            None if self.count > 1 else f"count is {self.count}; 2 or more tables",
            None if self.above_rows >= 0 else f"above_rows is {self.above_rows}; 0 or more",
            None
            if len(self.shares) == len(self.widths)
            else f"there are {len(self.shares)} shares and {len(self.widths)} widths; give one for each block",
            None
            if not self.shares or (min(self.shares) > 0 and abs(sum(self.shares) - 1) < 1e-6)
            else f"shares are {list(self.shares)}; they are above 0 and add up to 1",
            None
            if self.maps or not (blocks or self.method == "learned_hash")
            else f"{self.method} needs `maps`, a file of id maps (docs/compress.md says how to make it)",
            *map(self._unread, METHODS_OF),
        )

    def _unread(self, field: str) -> str | None:
        """What to say of a field that was set and that the method does not read."""
        value, methods = getattr(self, field), METHODS_OF[field]
        if self.method in methods or value == type(self).__dataclass_fields__[field].default:
            return None
        readers = ", ".join(methods)
        return f"{field} is {value}, and {self.method} does not read it; leave it out ({field} is for {readers})"

    def fits(self, table: LogicalTable) -> bool:
        """Whether the rule is for a table."""
        return fnmatchcase(table.name, self.tables) and table.num_embeddings > self.above_rows


def transforms_of(
    rules: Sequence[CompressionRule],
    tables: Sequence[tuple[LogicalTable, int]],
) -> dict[str, EmbeddingTransform]:
    """The transform of each table that a rule fits, by name. tables: with their columns.

    Raises:
        UsageError: a table cannot be stored so, or its map is missing or another table's.
    """
    maps = {rule.maps: load_maps(rule.maps) for rule in rules if rule.maps}
    made: dict[str, EmbeddingTransform] = {}
    for number, rule in enumerate(rules):
        mine = [(t, dim) for t, dim in tables if rule.fits(t) and not any(first.fits(t) for first in rules[:number])]
        if rule.method == "mixed_dimension" and not rule.shares:
            made.update(_power_widths(rule, mine, tables))
            continue
        for table, dim in mine:
            try:
                made[table.name] = _transform(rule, table, dim, maps)
            except UsageError as error:
                raise UsageError(f"table '{table.name}': {error}") from None
    return made


def _transform(
    rule: CompressionRule, table: LogicalTable, dim: int, maps: Mapping[str, Mapping[str, IdMap]]
) -> EmbeddingTransform:
    rows = table.num_embeddings
    left = max(1, round(rows / rule.factor))
    match rule.method:
        case "hash":
            return Hashing(num_embeddings=rows, embedding_dim=dim, rows=left)
        case "learned_hash":
            return Hashing(num_embeddings=rows, embedding_dim=dim, rows=left, row_of=_map(rule, table, maps))
        case "mixed_dimension":
            blocks = _blocks(rows, rule.shares, rule.widths)
            return MixedDimension(num_embeddings=rows, embedding_dim=dim, blocks=blocks, order=_map(rule, table, maps))
        case "path_based":
            networks = min(round(rule.factor), isqrt(rows))
            return PathBased(
                num_embeddings=rows, embedding_dim=dim, networks=networks, hidden=rule.hidden, max_bag=rule.max_bag
            )
        case "quotient_remainder":
            sizes = quotient_remainder(rows, min(round(rule.factor), isqrt(rows)))
        case "mixed_radix":
            sizes = balanced(rows, rule.count)
        case "chinese_remainder":
            sizes = coprime(rows, rule.count)
    family = "chinese_remainder" if rule.method == "chinese_remainder" else "mixed_radix"
    return Compositional(
        num_embeddings=rows, embedding_dim=dim, sizes=sizes, family=family, operation=rule.operation,
        max_bag=rule.max_bag,
    )  # fmt: skip


def _power_widths(
    rule: CompressionRule, mine: Sequence[tuple[LogicalTable, int]], tables: Sequence[tuple[LogicalTable, int]]
) -> dict[str, EmbeddingTransform]:
    """One block a table, its width by the power rule over all tables; those that keep the full width stay whole."""
    widest = max((dim for _, dim in tables), default=1)
    rows = [table.num_embeddings for table, _ in tables]
    widths = power_rule(rows, temperature=rule.temperature, base_dim=widest).tolist()
    of = {table.name: width for (table, _), width in zip(tables, widths, strict=True)}
    made: dict[str, EmbeddingTransform] = {}
    for table, dim in mine:
        width = kernel_width(of[table.name])
        if width < dim:
            block = Block(num_embeddings=table.num_embeddings, embedding_dim=width)
            made[table.name] = MixedDimension(num_embeddings=table.num_embeddings, embedding_dim=dim, blocks=(block,))
    return made


def kernel_width(width: int) -> int:
    """The narrowest width that can be stored, and holds so many columns: 1, 2 or a multiple of 4."""
    return width if width <= 2 else -(-width // KERNEL_WIDTH) * KERNEL_WIDTH


def _blocks(rows: int, shares: Sequence[float], widths: Sequence[int]) -> tuple[Block, ...]:
    """Blocks of ids by shares; one that would hold no id is left out."""
    ends = [round(rows * sum(shares[: k + 1])) for k in range(len(shares))]
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return tuple(
        Block(num_embeddings=count, embedding_dim=width) for count, width in zip(counts, widths, strict=True) if count
    )


def _map(rule: CompressionRule, table: LogicalTable, maps: Mapping[str, Mapping[str, IdMap]]) -> IdMap:
    found = maps.get(rule.maps or "", {})
    if table.name not in found:
        raise UsageError(f"'{rule.maps}' has no map of it; make the maps again for these tables")
    return found[table.name]
