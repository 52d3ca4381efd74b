"""Truncated tables: fewer columns, zeros in place of the others, and fewer rows, over which a hash distributes ids.

A masked column of a table as it is gives the same vectors, so what an architecture search finds
(docs/architecture-search.md) is such a table. No projection is trained; mixed_dimension has one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsmith._random import buckets
from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.embeddings.compression import CompressionRule, LogicalTable, StorageMethod
from recsmith.embeddings.hashing import SALT
from recsmith.embeddings.mixed_dimension import KERNEL_WIDTH
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, PhysicalTable, check_ids, renamed
from recsmith.errors import check_rules


@noun
class Truncated(EmbeddingTransform):
    """A table stored in its first `columns` columns and in `rows` rows."""

    num_embeddings: int
    embedding_dim: int
    columns: int
    rows: int

    def __post_init__(self) -> None:
        """Check both against the table."""
        check_rules(
            wrong_width(self.columns),
            None
            if self.columns <= self.embedding_dim
            else f"it would be {self.columns} columns wide and has {self.embedding_dim}; none is wider",
            None
            if 0 < self.rows <= self.num_embeddings
            else f"rows is {self.rows} for a table of {self.num_embeddings}; give 1 to {self.num_embeddings}",
        )

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """One table."""
        return (PhysicalTable(name="truncated", num_embeddings=self.rows, embedding_dim=self.columns),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One."""
        return (Lookup(name="truncated", part=0),)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags; where rows are fewer, of the rows that ids share."""
        check_ids(ids, self.num_embeddings)
        if self.rows == self.num_embeddings:
            return (ids,)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)

    def combination(self) -> Any:
        """Zeros beside the columns."""
        from recsmith.embeddings.combining import Padded

        return Padded(self.embedding_dim)


class TruncatedTables(StorageMethod):
    """The first of a table's columns, and a share of its rows."""

    reads = ("widths", "rows")

    @classmethod
    def problems(cls, rule: CompressionRule) -> Sequence[str | None]:
        """One width that kernels take, and a share of the rows."""
        one = len(rule.widths) == 1
        return (
            None if one else f"there are {len(rule.widths)} widths; truncated takes one, such as widths: [4]",
            wrong_width(rule.widths[0]) if one else None,
            None if 0 < rule.rows <= 1 else f"rows is {rule.rows:g}; it is a share, above 0 and up to 1",
        )

    def transform(self, table: LogicalTable) -> EmbeddingTransform | None:
        """The table in fewer columns and rows; one that keeps all of them stays whole."""
        _, rows, columns = table
        width, left = self.rule.widths[0], rows_left(rows, self.rule.rows)
        if (width, left) == (columns, rows):
            return None
        return Truncated(num_embeddings=rows, embedding_dim=columns, columns=width, rows=left)


def rows_left(rows: int, share: float) -> int:
    """Rows of a table of which a share is kept: one at least."""
    return max(1, round(rows * share))


def wrong_width(width: int) -> str | None:
    """What to say of a width that kernels do not take; None for one that they do."""
    if width > 0 and width % KERNEL_WIDTH == 0:
        return None
    near = max(KERNEL_WIDTH, width - width % KERNEL_WIDTH)
    return f"a table would be {width} columns wide, and kernels take multiples of {KERNEL_WIDTH}, such as {near}"
