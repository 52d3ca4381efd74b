"""What an embedding table is stored as: the protocol of all ways to store it smaller, and bags of ids taken apart.

B samples, n ids of a feature in all of them
"""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from recsmith._types import Bools, Ints, noun
from recsmith.data import JaggedIds
from recsmith.errors import UsageError


@noun
class PhysicalTable:
    """A physical table: one of those that a logical table is stored in.

    name: within the logical table. center, reach: its weights start uniformly within `reach` of `center`; None is
    1 / sqrt(num_embeddings), as torchrec's models have it.
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    center: float = 0.0
    reach: float | None = None


@noun
class Lookup:
    """A physical feature: ids that are looked up in one part.

    name: within the logical feature. part: its number. among: lookups that share the ids of a bag evenly, this one of
    them; 1 where each id is looked up here.
    """

    name: str
    part: int
    among: int = 1


class EmbeddingTransform(Protocol):
    """How a logical table of num_embeddings rows and embedding_dim columns is stored; what most have alike is here."""

    @property
    def num_embeddings(self) -> int:
        """Rows of the logical table; its ids are below this."""
        ...

    @property
    def embedding_dim(self) -> int:
        """Columns of the logical table."""
        ...

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """The physical tables."""
        ...

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The physical features that take the place of a feature of the table; several may look up one part."""
        ...

    @property
    def cover(self) -> tuple[int, ...]:
        """Numbers of lookups that together hold every id of a bag once: all, where each id is in one of them."""
        return tuple(range(len(self.lookups)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names within a feature of those that a model sees in its place, side by side; none: it sees the feature."""
        return ()

    @property
    def dense_parameters(self) -> int:
        """Parameters beside the tables, which every device has whole; a map of ids is none."""
        return 0

    @property
    def carried(self) -> tuple[str, ...]:
        """Names within a feature of numbers that `route` gives behind the ids of lookups, and that no part looks up."""
        return ()

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """Ids of each lookup, bags in the same order; then what is carried.

        Raises:
            UsageError: an id or a bag that this way of storing cannot hold.
        """
        ...

    def combination(self) -> Any:
        """A torch module of the pooled vectors of all lookups (each B, columns) -> (B, embedding_dim); loads torch."""
        from recsmith.embeddings.combining import Same

        return Same()


def physical(name: str, part: str) -> str:
    """The name of a physical table or feature: its logical one's, and its own within it."""
    return f"{name}@{part}"


def parameters(transform: EmbeddingTransform) -> int:
    """Numbers that a table is trained with: of its physical tables and beside them."""
    return sum(part.num_embeddings * part.embedding_dim for part in transform.parts) + transform.dense_parameters


def renamed(ids: JaggedIds, values: Ints) -> JaggedIds:
    """The same bags with other ids in the same places. values: (n,)."""
    return replace(ids, values=values)


def kept(ids: JaggedIds, values: Ints, mask: Bools) -> JaggedIds:
    """The bags without the ids that a mask leaves out. values: (n,) of all places. mask: (n,)."""
    count = len(ids.lengths)
    sample = np.repeat(np.arange(count), ids.lengths)
    lengths = np.bincount(sample[mask], minlength=count).astype(ids.lengths.dtype)
    return JaggedIds(values=values[mask], lengths=lengths, weights=None if ids.weights is None else ids.weights[mask])


def places(ids: JaggedIds) -> Ints:
    """The place of each id within its bag (n,): 0 for the first."""
    starts = np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths
    return np.arange(len(ids.values)) - np.repeat(starts, ids.lengths)


def check_ids(ids: JaggedIds, num_embeddings: int) -> None:
    """UsageError where an id is not one of the table's."""
    if len(ids.values) and not (ids.values.min() >= 0 and ids.values.max() < num_embeddings):
        wrong = ids.values[(ids.values < 0) | (ids.values >= num_embeddings)][0]
        raise UsageError(f"id {wrong} is not one of a table of {num_embeddings:,} rows; ids are 0 and more, below that")


def check_bags(ids: JaggedIds, longest: int, done: str) -> None:
    """UsageError where bags that are put together id by id have weights or too many ids. done: what is done to them."""
    if ids.weights is not None:
        raise UsageError(f"ids with weights cannot be {done}, which would not weigh them once; take operation add")
    found = int(ids.lengths.max(initial=0))
    if found > longest:
        raise UsageError(
            f"a bag holds {found} ids and max_bag is {longest}; raise max_bag, or take quotient_remainder with "
            "operation add, which has no such limit"
        )
