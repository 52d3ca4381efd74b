"""The choices of a search: widths and shares of rows of tables, widths of dense layers, and layers left out.

Spaces as in Krishna et al. (arXiv 2110.14812): embedding dimension, embedding cardinality and MLPs.
"""

from collections.abc import Iterator
from typing import Literal

from recsmith._types import noun
from recsmith.embeddings.truncated import rows_left, wrong_width
from recsmith.errors import UsageError, check_rules
from recsmith.units import counted
from recsmith.workloads import Table, Workload
from recsmith.workloads.patterns import fits

Unit = Literal["step", "bytes"]
Picks = tuple[int, ...]  # index of the choice for each part of a space, tables first
BOTTOM, TOP = "bottom", "top"
SHOWN = 5  # table names in an error


@noun
class PartChoice:
    """One choice for a table or a layer.

    width: its columns; 0 leaves the layer out. rows: share of a table's rows that is kept. price: seconds of a step, or
    bytes.
    """

    width: int
    rows: float = 1.0
    price: float = 0.0

    def __str__(self) -> str:
        """The choice in short, such as '8', '8 of 0.1 rows' or 'left out'."""
        if not self.width:
            return "left out"
        return str(self.width) if self.rows == 1 else f"{self.width} of {self.rows:.3g} rows"


@noun
class PartChoices:
    """The choices for a table, by its name, or for a layer, such as top.1."""

    name: str
    options: tuple[PartChoice, ...]

    @property
    def largest(self) -> int:
        """The index of the choice with the most rows, and then the widest: what the run has today."""
        return max(range(len(self.options)), key=lambda k: (self.options[k].rows, self.options[k].width))


@noun
class SearchSpace:
    """All choices of a search. fixed: price of the parts without a choice. unit: of prices."""

    tables: tuple[PartChoices, ...] = ()
    layers: tuple[PartChoices, ...] = ()
    fixed: float = 0.0
    unit: Unit = "bytes"

    def __post_init__(self) -> None:
        """Check that there is something to choose, and that kernels support the widths."""
        odd = [(each.name, wrong_width(c.width)) for each in self.tables for c in each.options if wrong_width(c.width)]
        share = [(each.name, c.rows) for each in self.tables for c in each.options if not 0 < c.rows <= 1]
        twin = next((each.name for each in self.parts if len(set(each.options)) < len(each.options)), None)
        check_rules(
            f"table '{odd[0][0]}': {odd[0][1]}" if odd else None,
            f"table '{share[0][0]}' would keep {share[0][1]:g} of its rows; a share is above 0 and up to 1"
            if share
            else None,
            None if twin is None else f"'{twin}' has the same choice twice; give each once",
            None if any(len(each.options) > 1 for each in self.parts) else self._nothing_to_search(),
        )

    def _nothing_to_search(self) -> str:
        first = f", such as '{self.parts[0].name}': {self.parts[0].options[0]}" if self.parts else ""
        return (
            f"{counted(len(self.parts), 'table or layer', 'tables or layers')} of one choice each{first}, so there is "
            "nothing to search; give --widths or --rows that are smaller, or --layers"
        )

    @property
    def parts(self) -> tuple[PartChoices, ...]:
        """Choices of tables, then of layers."""
        return (*self.tables, *self.layers)

    @property
    def largest(self) -> Picks:
        """The sample that the run has today."""
        return tuple(each.largest for each in self.parts)

    @property
    def cheapest(self) -> Picks:
        """The sample with the cheapest choice of each part."""
        return tuple(min(range(len(p.options)), key=lambda k: p.options[k].price) for p in self.parts)

    @property
    def whole(self) -> float:
        """The price of the unchanged run."""
        return self.price(self.largest)

    def price(self, picks: Picks) -> float:
        """The sum of the prices of a sample's choices, and of the parts without a choice."""
        return self.fixed + sum(part.options[pick].price for part, pick in zip(self.parts, picks, strict=True))

    def ceiling(self, under: float) -> float:
        """`under` (a share) of the unchanged run's price.

        Raises:
            UsageError: no sample is that cheap.
        """
        least = self.price(self.cheapest) / self.whole
        if under < least:
            raise UsageError(
                f"no sample of this space is under {under:.1%} of the run's price: the cheapest one is {least:.1%}; "
                f"raise --under to {least:.1%} or more, or give narrower --widths or fewer --rows"
            )
        return under * self.whole

    def check_same(self, other: "SearchSpace", where: str) -> None:
        """Raise UsageError if a resumed search has another space than it began with."""
        if self == other:
            return
        before, now = ({part.name: part for part in space.parts} for space in (other, self))
        odd = next((name for name in {**before, **now} if before.get(name) != now.get(name)), "")
        what = f"choices or prices of '{odd}' differ" if odd else "prices are in another unit"
        raise UsageError(f"{where} began with another space: {what}; give the same options, or another folder")


@noun
class SpaceOptions:
    """The search space that is requested.

    widths: columns that a table may have; if empty, its own width halved repeatedly, down to 4. rows: shares of its
    rows. tables: pattern of the tables that have a choice. layers: shares of the width of each layer. skip: whether
    layers that are at least as wide as their input may be left out.
    """

    widths: tuple[int, ...] = ()
    rows: tuple[float, ...] = ()
    tables: str = "*"
    layers: tuple[float, ...] = ()
    skip: bool = False


def make_space(
    workload: Workload, options: SpaceOptions, sizes: dict[str, tuple[int, ...]], dense: int = 1
) -> SearchSpace:
    """The space of a run, without prices yet.

    workload: its tables. sizes: of its layers bottom and top. dense: columns that the bottom reads.

    Raises:
        UsageError: nothing is left to choose, or there are no layers to choose.
    """
    chosen = [table for table in workload.tables if fits(options.tables, table.name)]
    kinds = {table.pooled: table.name for table in reversed(chosen)}
    check_rules(
        None
        if len(kinds) < 2
        else f"table '{kinds[True]}' is pooled and '{kinds[False]}' is not; search one kind at a time, by --tables",
        "this model has no layers bottom and top, which --layers and --skip choose; leave both out"
        if (options.layers or options.skip) and not sizes
        else None,
        None
        if chosen or options.layers or options.skip
        else f"no table is called '{options.tables}'; give --tables a pattern of {_some_names(workload)}",
        *(
            f"--{name} has {share:g}; it is a share of what the run has, above 0 and up to 1, such as 0.5"
            for name, shares in (("layers", options.layers), ("rows", options.rows))
            for share in shares
            if not 0 < share <= 1
        ),
    )
    layers = _layers(sizes, options, dense) if options.layers or options.skip else ()
    return SearchSpace(tables=tuple(_table(table, options) for table in chosen), layers=tuple(layers))


def _some_names(workload: Workload) -> str:
    names = [table.name for table in workload.tables]
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _table(table: Table, options: SpaceOptions) -> PartChoices:
    columns, count = table.embedding_dim, table.num_embeddings
    widths = sorted({columns, *(w for w in options.widths or halves(columns) if w <= columns)})
    shares = {rows_left(count, share): share for share in sorted({1.0, *options.rows})}  # equal counts are one choice
    pairs = [(width, shares[rows]) for rows in sorted(shares) for width in widths]
    return PartChoices(name=table.name, options=tuple(PartChoice(width=width, rows=share) for width, share in pairs))


def halves(columns: int) -> list[int]:
    """`columns`, half of it and so on, down to 4, as long as the halves are multiples of 4."""
    found = [columns]
    while found[-1] % 8 == 0:
        found.append(found[-1] // 2)
    return found


def _layers(sizes: dict[str, tuple[int, ...]], options: SpaceOptions, dense: int) -> Iterator[PartChoices]:
    """Choices of each layer. The first layer of the top is never left out: no other layer outputs what it reads."""
    for part, widths in sizes.items():
        for number, width in enumerate(widths):
            read = widths[number - 1] if number else dense
            found = sorted({width, *(max(1, round(width * share)) for share in options.layers)})
            if options.skip and read <= width and (part, number) != (TOP, 0):
                found = [0, *found]
            yield PartChoices(name=f"{part}.{number}", options=tuple(PartChoice(width=each) for each in found))
