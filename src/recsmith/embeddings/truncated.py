"""Truncated tables: only the first columns are stored, the rest are zeros; a hash distributes ids over fewer rows.

A full table with masked columns gives the same vectors, so the result of an architecture search
(docs/architecture-search.md) is such a table. Unlike in mixed_dimension, no projection is trained.
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
        """Check columns and rows against the table."""
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
        """The one table."""
        return (PhysicalTable(name="truncated", num_embeddings=self.rows, embedding_dim=self.columns),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The one lookup."""
        return (Lookup(name="truncated", part=0),)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags; if rows are fewer than ids, ids are replaced by their hashed rows."""
        check_ids(ids, self.num_embeddings)
        if self.rows == self.num_embeddings:
            return (ids,)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)

    def combination(self) -> Any:
        """The module that pads vectors with zeros."""
        from recsmith.embeddings.combining import Padded

        return Padded(self.embedding_dim)


class TruncatedTables(StorageMethod):
    """Stores the first columns of a table, and a share of its rows."""

    reads = ("widths", "rows")

    @classmethod
    def problems(cls, rule: CompressionRule) -> Sequence[str | None]:
        """Error texts unless there is one width that kernels support, and rows is a share."""
        one = len(rule.widths) == 1
        return (
            None if one else f"there are {len(rule.widths)} widths; truncated takes one, such as widths: [4]",
            wrong_width(rule.widths[0]) if one else None,
            None if 0 < rule.rows <= 1 else f"rows is {rule.rows:g}; it is a share, above 0 and up to 1",
        )

    def transform(self, table: LogicalTable) -> EmbeddingTransform | None:
        """The table stored in fewer columns and rows; None if it keeps all of them."""
        _, rows, columns = table
        width, left = self.rule.widths[0], rows_left(rows, self.rule.rows)
        if (width, left) == (columns, rows):
            return None
        return Truncated(num_embeddings=rows, embedding_dim=columns, columns=width, rows=left)


def rows_left(rows: int, share: float) -> int:
    """Number of rows if a share is kept; at least one."""
    return max(1, round(rows * share))


def wrong_width(width: int) -> str | None:
    """The error text for a width that kernels do not support; None if they do."""
    if width > 0 and width % KERNEL_WIDTH == 0:
        return None
    near = max(KERNEL_WIDTH, width - width % KERNEL_WIDTH)
    return f"a table would be {width} columns wide, and kernels take multiples of {KERNEL_WIDTH}, such as {near}"
