"""What a search chooses from: widths and shares of rows of tables, widths of dense layers, and layers left out.

Spaces as Krishna et al. (arXiv 2110.14812) have them: embedding dimension, embedding cardinality and MLPs.
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
Picks = tuple[int, ...]  # of each part of a space, tables first: the number of its choice
BOTTOM, TOP = "bottom", "top"
SHOWN = 5  # names of tables in an error


@noun
class PartChoice:
    """One of several things that a table or a layer may be.

    width: its columns; 0: the layer is left out. rows: share of a table's rows that is kept. price: seconds of a step,
    or bytes.
    """

    width: int
    rows: float = 1.0
    price: float = 0.0

    def __str__(self) -> str:
        """In few words, such as '8' or '8 of 10% rows'."""
        if not self.width:
            return "left out"
        return str(self.width) if self.rows == 1 else f"{self.width} of {self.rows:.3g} rows"


@noun
class PartChoices:
    """A table, by its name, or a layer, such as top.1, and what it may be."""

    name: str
    options: tuple[PartChoice, ...]

    @property
    def largest(self) -> int:
        """The number of the widest choice with the most rows: what the run has today."""
        return max(range(len(self.options)), key=lambda k: (self.options[k].rows, self.options[k].width))


@noun
class SearchSpace:
    """All choices of a search. fixed: price of what has no choice. unit: of prices."""

    tables: tuple[PartChoices, ...] = ()
    layers: tuple[PartChoices, ...] = ()
    fixed: float = 0.0
    unit: Unit = "bytes"

    def __post_init__(self) -> None:
        """Check that there is something to choose, and that kernels take it."""
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
        """Tables, then layers."""
        return (*self.tables, *self.layers)

    @property
    def largest(self) -> Picks:
        """What the run has today."""
        return tuple(each.largest for each in self.parts)

    @property
    def cheapest(self) -> Picks:
        """The least price of each part."""
        return tuple(min(range(len(p.options)), key=lambda k: p.options[k].price) for p in self.parts)

    @property
    def whole(self) -> float:
        """The price of the run as it is."""
        return self.price(self.largest)

    def price(self, picks: Picks) -> float:
        """The sum of the prices of a sample's choices, and of what has no choice."""
        return self.fixed + sum(part.options[pick].price for part, pick in zip(self.parts, picks, strict=True))

    def ceiling(self, under: float) -> float:
        """The price that is `under` (a share) of that of the run as it is.

        Raises:
            UsageError: no sample is so cheap.
        """
        least = self.price(self.cheapest) / self.whole
        if under < least:
            raise UsageError(
                f"no sample of this space is under {under:.1%} of the run's price: the cheapest one is {least:.1%}; "
                f"raise --under to {least:.1%} or more, or give narrower --widths or fewer --rows"
            )
        return under * self.whole

    def check_same(self, other: "SearchSpace", where: str) -> None:
        """UsageError where a search that goes on has another space than it began with."""
        if self == other:
            return
        before, now = ({part.name: part for part in space.parts} for space in (other, self))
        odd = next((name for name in {**before, **now} if before.get(name) != now.get(name)), "")
        what = f"choices or prices of '{odd}' differ" if odd else "prices are in another unit"
        raise UsageError(f"{where} began with another space: {what}; give the same options, or another folder")


@noun
class SpaceOptions:
    """Which space is asked for.

    widths: columns that a table may have; none: halves of its own, down to 4. rows: shares of its rows. tables: which
    of them have a choice. layers: shares of the width of each layer. skip: layers that are no narrower than what they
    read may be left out.
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
    shares = {rows_left(count, share): share for share in sorted({1.0, *options.rows})}  # as many rows: one choice
    pairs = [(width, shares[rows]) for rows in sorted(shares) for width in widths]
    return PartChoices(name=table.name, options=tuple(PartChoice(width=width, rows=share) for width, share in pairs))


def halves(columns: int) -> list[int]:
    """Columns, half of them and so on, down to 4."""
    found = [columns]
    while found[-1] % 8 == 0:
        found.append(found[-1] // 2)
    return found


def _layers(sizes: dict[str, tuple[int, ...]], options: SpaceOptions, dense: int) -> Iterator[PartChoices]:
    """Choices of each layer; the first of the top is never left out, since it reads what no other layer gives."""
    for part, widths in sizes.items():
        for number, width in enumerate(widths):
            read = widths[number - 1] if number else dense
            found = sorted({width, *(max(1, round(width * share)) for share in options.layers)})
            if options.skip and read <= width and (part, number) != (TOP, 0):
                found = [0, *found]
            yield PartChoices(name=f"{part}.{number}", options=tuple(PartChoice(width=each) for each in found))
