"""Hashed tables: every id goes to one of fewer rows, by a fixed hash or a learned one; ids that meet share a vector.

Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009 (arXiv 0902.2206). How rows are
learned: learned_hash.py.
"""

import numpy as np

from recsmith._random import buckets
from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.embeddings.id_maps import IdMap
from recsmith.embeddings.parts import Lookup, Part
from recsmith.embeddings.routing import check_ids, renamed
from recsmith.errors import check_rules

SALT = 0x9E3779B97F4A7C15  # of the hash; any fixed word serves


@noun
class Hashing:
    """A table stored in `rows` rows. row_of: which of them each id shares; None: a fixed hash distributes the ids."""

    num_embeddings: int
    embedding_dim: int
    rows: int
    row_of: IdMap | None = None

    def __post_init__(self) -> None:
        """Check that it has rows, no more than the table, and that the map is this table's."""
        check_rules(
            None
            if 0 < self.rows <= self.num_embeddings
            else f"rows is {self.rows} for a table of {self.num_embeddings}; give 1 to {self.num_embeddings}"
        )
        if self.row_of is not None:
            self.row_of.check(self.num_embeddings, self.rows)

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
        """None; a map, 4 bytes an id, is no parameter."""
        return 0

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags, ids replaced by their rows."""
        check_ids(ids, self.num_embeddings)
        if self.row_of is not None:
            return (renamed(ids, self.row_of(ids.values)),)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)
