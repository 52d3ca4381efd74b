"""The protocol of all methods that compress an embedding table, and helpers that split bags of ids.

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
    """A physical table: one of the tables that store a logical table.

    name: its name within the logical table. center, reach: weights are initialized uniformly from center - reach to
    center + reach; a reach of None is 1 / sqrt(num_embeddings), as in torchrec's models.
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    center: float = 0.0
    reach: float | None = None


@noun
class Lookup:
    """A physical feature: ids that are looked up in one physical table.

    name: its name within the logical feature. part: the number of the physical table. among: number of lookups,
    this one included, over which the ids of a bag are distributed evenly; 1: every id is looked up here.
    """

    name: str
    part: int
    among: int = 1


class EmbeddingTransform(Protocol):
    """How a logical table of num_embeddings rows and embedding_dim columns is stored; defaults suit most methods."""

    @property
    def num_embeddings(self) -> int:
        """Number of rows of the logical table; ids are below it."""
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
        """The physical features that replace a feature of the table; several may look up the same physical table."""
        ...

    @property
    def cover(self) -> tuple[int, ...]:
        """Numbers of the lookups that together hold each id of a bag once; all lookups, if each id is in only one."""
        return tuple(range(len(self.lookups)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the features that a model sees in place of the one feature; empty if it sees the feature itself."""
        return ()

    @property
    def dense_parameters(self) -> int:
        """Number of parameters besides the tables, which every device holds; an id map has none."""
        return 0

    @property
    def carried(self) -> tuple[str, ...]:
        """Names of additional bags that `route` returns after those of the lookups, and that are not looked up."""
        return ()

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of ids of each lookup, in the order of samples; then the bags that are `carried`.

        Raises:
            UsageError: an id or a bag cannot be stored with this method.
        """
        ...

    def combination(self) -> Any:
        """A torch module from all lookups' pooled vectors (each B, columns) to (B, embedding_dim); imports torch."""
        from recsmith.embeddings.combining import Same

        return Same()


def physical(name: str, part: str) -> str:
    """The full name of a physical table or feature: the logical name @ the name within it."""
    return f"{name}@{part}"


def parameters(transform: EmbeddingTransform) -> int:
    """Number of trained parameters of a table: those of its physical tables, and the dense ones."""
    return sum(part.num_embeddings * part.embedding_dim for part in transform.parts) + transform.dense_parameters


def renamed(ids: JaggedIds, values: Ints) -> JaggedIds:
    """The same bags with their ids replaced. values: the new ids (n,)."""
    return replace(ids, values=values)


def kept(ids: JaggedIds, values: Ints, mask: Bools) -> JaggedIds:
    """The bags with the ids replaced, and only those kept where the mask is true. values: new ids (n,). mask: (n,)."""
    count = len(ids.lengths)
    sample = np.repeat(np.arange(count), ids.lengths)
    lengths = np.bincount(sample[mask], minlength=count).astype(ids.lengths.dtype)
    return JaggedIds(values=values[mask], lengths=lengths, weights=None if ids.weights is None else ids.weights[mask])


def places(ids: JaggedIds) -> Ints:
    """The position of each id within its bag (n,), counted from 0."""
    starts = np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths
    return np.arange(len(ids.values)) - np.repeat(starts, ids.lengths)


def check_ids(ids: JaggedIds, num_embeddings: int) -> None:
    """Raise UsageError if an id is no row of the table."""
    if len(ids.values) and not (ids.values.min() >= 0 and ids.values.max() < num_embeddings):
        wrong = ids.values[(ids.values < 0) | (ids.values >= num_embeddings)][0]
        raise UsageError(f"id {wrong} is not one of a table of {num_embeddings:,} rows; ids are 0 and more, below that")


def check_bags(ids: JaggedIds, longest: int, done: str) -> None:
    """Raise UsageError if bags have weights or too many ids. done: what the method does id by id, for errors."""
    if ids.weights is not None:
        raise UsageError(f"ids with weights cannot be {done}, which would not weigh them once; take operation add")
    found = int(ids.lengths.max(initial=0))
    if found > longest:
        raise UsageError(
            f"a bag holds {found} ids and max_bag is {longest}; raise max_bag, or take quotient_remainder with "
            "operation add, which has no such limit"
        )
