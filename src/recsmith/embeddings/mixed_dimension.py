"""Mixed dimension embeddings: blocks of ids have different widths, and each is projected to the table's width.

Ginart et al., Mixed Dimension Embeddings with Application to Memory-Efficient Recommendation Systems, ISIT 2021
(arXiv 1909.11810). By their power rule a block's width grows with a power of its popularity; constants are those of the
authors' solver in facebookresearch/dlrm.

n ids of a feature in a batch, N blocks
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data import JaggedIds
from recsmith.embeddings.compression import (
    CompressionRule,
    Dial,
    LogicalTable,
    StorageMethod,
    map_of,
    needs_maps,
)
from recsmith.embeddings.id_maps import IdMap
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, PhysicalTable, check_ids, kept
from recsmith.errors import check_rules

HOTTEST = 10.0  # temperature; with higher ones, powers of rows overflow
KERNEL_WIDTH = 4  # columns of the narrowest table that FBGEMM's kernels support


@noun
class WidthBlock:
    """A block of `num_embeddings` ids with vectors of `embedding_dim` columns."""

    num_embeddings: int
    embedding_dim: int

    @property
    def lanes(self) -> int:
        """Ids stored side by side in a physical row; several if vectors are narrower than kernels support."""
        return max(1, KERNEL_WIDTH // self.embedding_dim)

    @property
    def rows(self) -> int:
        """Number of physical rows."""
        return -(-self.num_embeddings // self.lanes)


@noun
class MixedDimension(EmbeddingTransform):
    """A table stored as blocks of ids, which are taken in the order of `order`.

    order: the rank of each id by falling popularity, from 0; None: ids are such ranks already.
    """

    num_embeddings: int
    embedding_dim: int
    blocks: tuple[WidthBlock, ...]
    order: IdMap | None = None

    def __post_init__(self) -> None:
        """Check that blocks hold every id once, and that their widths are supported and not above the table's."""
        held = sum(block.num_embeddings for block in self.blocks)
        widths = [block.embedding_dim for block in self.blocks]
        check_rules(
            None
            if held == self.num_embeddings
            else f"blocks hold {held:,} ids and the table has {self.num_embeddings:,}; every id is in one block",
            None
            if all(width in (1, 2) or width % KERNEL_WIDTH == 0 for width in widths)
            else f"blocks are {widths} columns wide; kernels want 1, 2 or multiples of {KERNEL_WIDTH}",
            None
            if max(widths, default=1) <= self.embedding_dim
            else f"a block is {max(widths)} columns wide and the table {self.embedding_dim}; none is wider",
        )
        if self.order is not None:
            self.order.check(self.num_embeddings, self.num_embeddings)

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """One table per block."""
        return tuple(
            PhysicalTable(name=f"block{k}", num_embeddings=block.rows, embedding_dim=block.embedding_dim * block.lanes)
            for k, block in enumerate(self.blocks)
        )

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One lookup per block, or one per lane if several ids share a physical row."""
        return tuple(
            Lookup(name=f"block{k}_{lane}" if block.lanes > 1 else f"block{k}", part=k, among=block.lanes)
            for k, block in enumerate(self.blocks)
            for lane in range(block.lanes)
        )

    @property
    def dense_parameters(self) -> int:
        """Parameters of the projections of blocks that are narrower than the table."""
        return sum(
            block.embedding_dim * self.embedding_dim
            for block in self.blocks
            if block.embedding_dim < self.embedding_dim
        )

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each block and lane, each with its own ids only."""
        check_ids(ids, self.num_embeddings)
        number: Ints = ids.values if self.order is None else self.order(ids.values)
        routed: list[JaggedIds] = []
        first = 0
        for block in self.blocks:
            inside = (number >= first) & (number < first + block.num_embeddings)
            row, lane = np.divmod(number - first, block.lanes)
            routed += [kept(ids, row, inside & (lane == i)) for i in range(block.lanes)]
            first += block.num_embeddings
        return tuple(routed)

    def combination(self) -> Any:
        """The sum of the blocks' projections."""
        from recsmith.embeddings.combining import Projections

        blocks = [(block.embedding_dim, block.lanes) for block in self.blocks]
        return Projections(blocks, self.embedding_dim)


class MixedDimensions(StorageMethod):
    """Stores tables with narrower rows.

    Each table gets one width, by the power rule over all tables; or, with shares and widths, blocks of ids by
    popularity.
    """

    reads = ("temperature", "shares", "widths", "maps")
    dial: ClassVar[Dial] = Dial(field="temperature", low=0.0, high=4.0)

    @classmethod
    def problems(cls, rule: CompressionRule) -> Sequence[str | None]:
        """Error texts if shares and widths do not match, shares do not add up to 1, or their id map is missing."""
        return (
            None
            if len(rule.shares) == len(rule.widths)
            else f"there are {len(rule.shares)} shares and {len(rule.widths)} widths; give one for each block",
            None
            if not rule.shares or (min(rule.shares) > 0 and abs(sum(rule.shares) - 1) < 1e-6)
            else f"shares are {list(rule.shares)}; they are above 0 and add up to 1",
            needs_maps(rule) if rule.shares or rule.widths else None,
        )

    @cached_property
    def widths(self) -> dict[str, int]:
        """The width of each table by the power rule, rounded up to a supported width, by table name."""
        rows, widest = [each.num_embeddings for each in self.tables], max(each.embedding_dim for each in self.tables)
        widths = power_rule(rows, temperature=self.rule.temperature, base_dim=widest).tolist()
        return {each.name: kernel_width(width) for each, width in zip(self.tables, widths, strict=True)}

    def transform(self, table: LogicalTable) -> EmbeddingTransform | None:
        """The table stored in blocks; None if it keeps its full width."""
        name, rows, columns = table
        if self.rule.shares:
            blocks, order = _blocks(rows, self.rule.shares, self.rule.widths), map_of(self.rule, table, self.maps)
        elif self.widths[name] < columns:
            blocks, order = (WidthBlock(num_embeddings=rows, embedding_dim=self.widths[name]),), None
        else:
            return None
        return MixedDimension(num_embeddings=rows, embedding_dim=columns, blocks=blocks, order=order)


def kernel_width(width: int) -> int:
    """The narrowest supported width of at least `width` columns: 1, 2 or a multiple of 4."""
    return width if width <= 2 else -(-width // KERNEL_WIDTH) * KERNEL_WIDTH


def _blocks(rows: int, shares: Sequence[float], widths: Sequence[int]) -> tuple[WidthBlock, ...]:
    """Blocks of ids by shares of the rows; empty blocks are left out."""
    ends = [round(rows * sum(shares[: k + 1])) for k in range(len(shares))]
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return tuple(
        WidthBlock(num_embeddings=count, embedding_dim=width)
        for count, width in zip(counts, widths, strict=True)
        if count
    )


def power_rule(
    rows: Sequence[int], *, temperature: float, base_dim: int | None = None, budget: float | None = None,
    queries: Sequence[float] | None = None,
) -> Ints:  # fmt: skip
    """Widths (N,) of blocks of rows: lambda * (queries / rows) ** temperature, and at least 1.

    Args:
        rows: number of rows of each block.
        temperature: 0 gives all blocks the same width, 1 widths in proportion to popularity.
        base_dim: width of the block with the most queries per row, which determines lambda.
        budget: instead of base_dim, the total number of parameters at unrounded widths.
        queries: mean number of a sample's ids that fall into each block; None: 1 for each block.

    Raises:
        UsageError: neither or both of base_dim and budget are given, or a count is not positive.
    """
    count = np.asarray(rows, dtype=np.float64)
    asked = np.ones(len(count)) if queries is None else np.asarray(queries, dtype=np.float64)
    check_rules(
        None if (base_dim is None) != (budget is None) else "give base_dim or budget, one of them",
        None if len(count) and (count > 0).all() and (asked > 0).all() else "blocks have rows and queries above 0",
        None if 0 <= temperature <= HOTTEST else f"temperature is {temperature:g}; 0 to {HOTTEST:g}",
    )
    rarity = count / asked
    if base_dim is not None:
        scale = base_dim * rarity.min() ** temperature
    else:
        scale = float(budget or 0) / float((count * rarity**-temperature).sum())
    return np.rint(np.maximum(1.0, scale * rarity**-temperature)).astype(np.int64)
