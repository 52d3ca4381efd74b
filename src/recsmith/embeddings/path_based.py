"""Path-based compositional embeddings: ids of equal remainder share a row, and their quotient selects a network.

Shi et al., Compositional Embeddings Using Complementary Partitions, KDD 2020 (arXiv 1909.02107), where the second
partition picks one of several small networks. The networks here have one hidden layer and no biases, so that an empty
position of a bag adds nothing.

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

    networks: number of networks; the quotient id // rows selects one. max_bag: most ids in a bag; networks are applied
    id by id before bags are summed, so there is a lookup for each position in a bag and each network.
    """

    num_embeddings: int
    embedding_dim: int
    networks: int
    hidden: int = 16
    max_bag: int = 1

    def __post_init__(self) -> None:
        """Check that all numbers are in range."""
        check_rules(
            None
            if 1 < self.networks <= self.num_embeddings
            else f"there are {self.networks} networks for {self.num_embeddings} ids; give 2 to {self.num_embeddings}",
            None if self.hidden > 0 else f"hidden is {self.hidden}; 1 or more columns",
            None if self.max_bag > 0 else f"max_bag is {self.max_bag}; 1 or more",
        )

    @property
    def rows(self) -> int:
        """Rows of the physical table, one per remainder."""
        return -(-self.num_embeddings // self.networks)

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """The table of remainders."""
        return (PhysicalTable(name="remainder", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One lookup for each position in a bag and each network."""
        return tuple(
            Lookup(name=f"remainder{i}_{network}", part=0, among=self.max_bag * self.networks)
            for i in range(self.max_bag)
            for network in range(self.networks)
        )

    @property
    def dense_parameters(self) -> int:
        """Parameters of the networks, two matrices each."""
        return self.networks * 2 * self.embedding_dim * self.hidden

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The bags of each position and network, each with its own ids only."""
        check_ids(ids, self.num_embeddings)
        check_bags(ids, self.max_bag, "put through networks")
        network, row = np.divmod(ids.values, self.rows)
        place = places(ids)
        return tuple(
            kept(ids, row, (place == i) & (network == k)) for i in range(self.max_bag) for k in range(self.networks)
        )

    def combination(self) -> Any:
        """The module of all networks."""
        from recsmith.embeddings.combining import Networks

        return Networks(self.networks, self.embedding_dim, self.hidden)


class Paths(StorageMethod):
    """Stores a row for each remainder, shared by `factor` ids, and a network of `hidden` columns for each quotient."""

    reads = ("factor", "max_bag", "hidden")

    def transform(self, table: LogicalTable) -> EmbeddingTransform:
        """The table stored as remainders and networks."""
        _, rows, columns = table
        return PathBased(
            num_embeddings=rows,
            embedding_dim=columns,
            networks=sharing(self.rule, rows),
            hidden=self.rule.hidden,
            max_bag=self.rule.max_bag,
        )
