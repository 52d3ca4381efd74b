"""Mixed dimension embeddings: blocks of ids with widths of their own, each projected to the table's width.

Ginart et al., ISIT 2021 (arXiv 1909.11810). Widths by popularity: power_rule.py.

n ids of a feature in a batch
"""

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data import JaggedIds
from recsmith.embeddings.id_maps import IdMap
from recsmith.embeddings.parts import Lookup, Part
from recsmith.embeddings.routing import check_ids, kept
from recsmith.errors import check_rules

KERNEL_WIDTH = 4  # columns of the narrowest table that FBGEMM's kernels take


@noun
class Block:
    """Some ids with vectors of `embedding_dim` columns; they are `num_embeddings` many."""

    num_embeddings: int
    embedding_dim: int

    @property
    def lanes(self) -> int:
        """Ids that share a physical row, side by side: several where vectors are narrower than kernels take."""
        return max(1, KERNEL_WIDTH // self.embedding_dim)

    @property
    def rows(self) -> int:
        """Physical rows."""
        return -(-self.num_embeddings // self.lanes)


@noun
class MixedDimension:
    """A table stored as blocks of ids; where there are several, the ids are taken in the order of `order`.

    order: the number of each id, from 0, by falling popularity; None: ids are such numbers already.
    """

    num_embeddings: int
    embedding_dim: int
    blocks: tuple[Block, ...]
    order: IdMap | None = None

    def __post_init__(self) -> None:
        """Check that blocks hold every id once, and their widths."""
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
    def parts(self) -> tuple[Part, ...]:
        """One table a block."""
        return tuple(
            Part(name=f"block{k}", num_embeddings=block.rows, embedding_dim=block.embedding_dim * block.lanes)
            for k, block in enumerate(self.blocks)
        )

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One for each block, and for each lane where several ids share a row."""
        return tuple(
            Lookup(name=f"block{k}_{lane}" if block.lanes > 1 else f"block{k}", part=k)
            for k, block in enumerate(self.blocks)
            for lane in range(block.lanes)
        )

    @property
    def cover(self) -> tuple[int, ...]:
        """All: each id is in one."""
        return tuple(range(len(self.lookups)))

    @property
    def dense_parameters(self) -> int:
        """Those of the projections of blocks that are narrower than the table."""
        return sum(
            block.embedding_dim * self.embedding_dim
            for block in self.blocks
            if block.embedding_dim < self.embedding_dim
        )

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each block and lane, without the ids of the others."""
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
