"""Path-based compositional embeddings: ids of one remainder share a row, and their quotient says what is made of it.

Shi et al., Compositional Embeddings Using Complementary Partitions, KDD 2020 (arXiv 1909.02107), where the second
partition picks one of several small networks. Ours have one hidden layer and no biases: a place in a bag that is empty
then adds nothing.

D columns of the table, n ids of a feature in a batch
"""

from typing import Any

import numpy as np

from recsmith._types import noun
from recsmith.data import JaggedIds
from recsmith.embeddings.compositional import sharing
from recsmith.embeddings.compression import LogicalTable, StorageMethod
from recsmith.embeddings.transforms import (
    EmbeddingTransform,
    Lookup,
    PhysicalTable,
    check_bags,
    check_ids,
    kept,
    places,
)
from recsmith.errors import check_rules


@noun
class PathBased(EmbeddingTransform):
    """A table stored as one row for each remainder, and a network D -> hidden -> D for each quotient.

    networks: how many there are; an id's quotient by the number of rows says which is its own. max_bag: most ids in a
    bag; networks are applied id by id before bags are summed, so every place in a bag is looked up for each network.
    """

    num_embeddings: int
    embedding_dim: int
    networks: int
    hidden: int = 16
    max_bag: int = 1

    def __post_init__(self) -> None:
        """Check counts."""
        check_rules(
            None
            if 1 < self.networks <= self.num_embeddings
            else f"there are {self.networks} networks for {self.num_embeddings} ids; give 2 to {self.num_embeddings}",
            None if self.hidden > 0 else f"hidden is {self.hidden}; 1 or more columns",
            None if self.max_bag > 0 else f"max_bag is {self.max_bag}; 1 or more",
        )

    @property
    def rows(self) -> int:
        """Rows of the physical table: remainders."""
        return -(-self.num_embeddings // self.networks)

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """The table of remainders."""
        return (PhysicalTable(name="remainder", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One for each place in a bag and each network."""
        return tuple(
            Lookup(name=f"remainder{i}_{network}", part=0, among=self.max_bag * self.networks)
            for i in range(self.max_bag)
            for network in range(self.networks)
        )

    @property
    def dense_parameters(self) -> int:
        """Those of the networks, two matrices each."""
        return self.networks * 2 * self.embedding_dim * self.hidden

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each place and network, without the ids of the others."""
        check_ids(ids, self.num_embeddings)
        check_bags(ids, self.max_bag, "put through networks")
        network, row = np.divmod(ids.values, self.rows)
        place = places(ids)
        return tuple(
            kept(ids, row, (place == i) & (network == k)) for i in range(self.max_bag) for k in range(self.networks)
        )

    def combination(self) -> Any:
        """The networks."""
        from recsmith.embeddings.combining import Networks

        return Networks(self.networks, self.embedding_dim, self.hidden)


class Paths(StorageMethod):
    """A row for each remainder, which `factor` ids share, and a network of `hidden` columns for each quotient."""

    reads = ("factor", "max_bag", "hidden")

    def transform(self, table: LogicalTable) -> EmbeddingTransform:
        """The table as remainders and networks."""
        _, rows, columns = table
        return PathBased(
            num_embeddings=rows,
            embedding_dim=columns,
            networks=sharing(self.rule, rows),
            hidden=self.rule.hidden,
            max_bag=self.rule.max_bag,
        )
