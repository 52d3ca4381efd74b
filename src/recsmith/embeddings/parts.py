"""What an embedding table is stored as, and the protocol of all ways to store it smaller.

B samples, n ids of a feature in all of them
"""

from typing import Protocol

from recsmith._types import noun
from recsmith.data import JaggedIds


@noun
class Part:
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
    """A physical feature: ids that are looked up in one part. name: within the logical feature. part: its number."""

    name: str
    part: int


class EmbeddingTransform(Protocol):
    """How a logical table of num_embeddings rows and embedding_dim columns is stored."""

    @property
    def num_embeddings(self) -> int:
        """Rows of the logical table; its ids are below this."""
        ...

    @property
    def embedding_dim(self) -> int:
        """Columns of the logical table."""
        ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """The physical tables."""
        ...

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The physical features that take the place of a feature of the table; several may look up one part."""
        ...

    @property
    def cover(self) -> tuple[int, ...]:
        """Numbers of lookups that together hold every id of a bag once."""
        ...

    @property
    def dense_parameters(self) -> int:
        """Parameters beside the tables, which every device has whole."""
        ...

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """Ids of each lookup, bags in the same order.

        Raises:
            UsageError: an id or a bag that this way of storing cannot hold.
        """
        ...


def physical(name: str, part: str) -> str:
    """The name of a physical table or feature: its logical one's, and its own within it."""
    return f"{name}@{part}"


def parameters(transform: EmbeddingTransform) -> int:
    """Numbers that a table is trained with: of its physical tables and beside them."""
    return sum(part.num_embeddings * part.embedding_dim for part in transform.parts) + transform.dense_parameters
