"""The hashing trick: every id goes to one of fewer rows; ids that meet there share a vector.

Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009 (arXiv 0902.2206).
"""

import numpy as np

from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.data.generator.hashing import buckets
from recsmith.embeddings.parts import Lookup, Part
from recsmith.embeddings.routing import check_ids, renamed
from recsmith.errors import check_rules

SALT = 0x9E3779B97F4A7C15  # of the hash; any fixed word serves


@noun
class Hashing:
    """A table stored in `rows` rows, among which a fixed hash distributes its ids."""

    num_embeddings: int
    embedding_dim: int
    rows: int

    def __post_init__(self) -> None:
        """Check that it has rows, and fewer than the table."""
        check_rules(
            None
            if 0 < self.rows <= self.num_embeddings
            else f"rows is {self.rows} for a table of {self.num_embeddings}; give 1 to {self.num_embeddings}"
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """One table of the rows that are left."""
        return (Part(name="hashed", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One."""
        return (Lookup(name="hashed", part=0),)

    @property
    def cover(self) -> tuple[int, ...]:
        """The one."""
        return (0,)

    @property
    def dense_parameters(self) -> int:
        """None."""
        return 0

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags, ids hashed."""
        check_ids(ids, self.num_embeddings)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)
