"""Compresses tables whose rows are not pooled: each id is looked up as a bag of its own.

B samples, n ids of a feature in all of them
"""

from dataclasses import replace
from typing import Any

import numpy as np

from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, PhysicalTable
from recsmith.errors import check_rules

WHERE = "lookups"  # name of the carried bags of bit masks: bit k of an id's mask says that lookup k has the id
MOST_LOOKUPS = 62  # usable bits of a mask


@noun
class IdById(EmbeddingTransform):
    """Applies a transform to a table whose rows are not pooled. stored: the transform, for bags of one id."""

    stored: EmbeddingTransform

    def __post_init__(self) -> None:
        """Check that each id gets one vector, from at most MOST_LOOKUPS lookups."""
        count = len(self.stored.lookups)
        check_rules(
            None
            if not self.stored.outputs
            else "operation generate gives an id several vectors, and each event of a history has one; take multiply, "
            "add or concat",
            None
            if count <= MOST_LOOKUPS
            else f"its ids go to {count} lookups, and where they are not pooled to at most {MOST_LOOKUPS}; take fewer "
            "blocks, or a smaller factor",
        )

    @property
    def num_embeddings(self) -> int:
        """Number of rows of the logical table."""
        return self.stored.num_embeddings

    @property
    def embedding_dim(self) -> int:
        """Columns of the logical table."""
        return self.stored.embedding_dim

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """The physical tables."""
        return self.stored.parts

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The physical features."""
        return self.stored.lookups

    @property
    def dense_parameters(self) -> int:
        """Number of parameters besides the tables."""
        return self.stored.dense_parameters

    @property
    def carried(self) -> tuple[str, ...]:
        """The masks of which lookups have an id, unless one lookup has all ids."""
        return () if len(self.stored.cover) == 1 else (WHERE,)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The ids of each lookup, in order; then, if carried, for each id the mask of the lookups that have it.

        Raises the errors of the wrapped transform.
        """
        count = len(ids.values)
        routed = self.stored.route(replace(ids, lengths=np.ones(count, ids.lengths.dtype)))
        sample = np.repeat(np.arange(len(ids.lengths)), ids.lengths)
        made = [replace(each, lengths=_summed(each, sample, ids)) for each in routed]
        if not self.carried:
            return tuple(made)
        where = np.zeros(count, np.int64)
        for number, each in enumerate(routed):
            where |= each.lengths.astype(np.int64) << number
        return (*made, replace(ids, values=where.astype(ids.values.dtype)))

    def combination(self) -> Any:
        """The wrapped transform's module, which is applied to bags of one id."""
        return self.stored.combination()


def _summed(ids: JaggedIds, sample: Any, whole: JaggedIds) -> Any:
    """How many ids of a lookup each sample has (B,). ids: bags of at most one id. sample: sample of each bag (n,)."""
    found = np.bincount(sample, weights=ids.lengths, minlength=len(whole.lengths))
    return found.astype(whole.lengths.dtype)
