"""A way to store tables smaller of one's own: Bloom embeddings. Run: python examples/own_storage.py.

Serra and Karatzoglou, Getting Deep Recommenders Fit (RecSys 2017, arXiv 1706.03993): an id reads several rows of one
small table, by as many hashes, and its vector is their sum. A run names the method as
`compression: [{method: own_storage:Bloom, arguments: {rows: 40}}]`; nothing else of RecSmith knows of it.
"""

import tempfile

import numpy as np

from recsmith._random import buckets
from recsmith._types import noun
from recsmith.embeddings import CompressionRule, EmbeddingTransform, Lookup, PhysicalTable, StorageMethod
from recsmith.embeddings.transforms import check_ids, renamed
from recsmith.training import Run, RunData, RunModel, train

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 400}]}


@noun
class BloomTable(EmbeddingTransform):
    """A table whose ids read `hashes` of its `rows` rows each; this half needs no torch."""

    num_embeddings: int
    embedding_dim: int
    rows: int
    hashes: int

    @property
    def parts(self):
        """One small table."""
        return (PhysicalTable(name="bloom", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self):
        """One for each hash, all in the one table."""
        return tuple(Lookup(name=f"hash{k}", part=0) for k in range(self.hashes))

    @property
    def cover(self):
        """The first: every hash reads every id."""
        return (0,)

    def route(self, ids):
        """The same bags for each hash, with the rows that it gives."""
        check_ids(ids, self.num_embeddings)
        salts = [np.array([0xB5297A4D + 2 * k], np.uint64) for k in range(self.hashes)]
        return tuple(renamed(ids, buckets(ids.values, salt, self.rows)) for salt in salts)

    def combination(self):
        """Rows are added up; torch loads here."""
        from recsmith.embeddings.combining import Sums

        return Sums()


class Bloom(StorageMethod):
    """The method of a rule: `rows` and `hashes` are its own arguments."""

    def __init__(self, rule, tables, maps, *, rows: int, hashes: int = 2) -> None:
        self.rows, self.hashes = rows, hashes

    def transform(self, table):
        """Tables that have no more rows than the small one stay whole."""
        _, rows, columns = table
        if rows <= self.rows:
            return None
        return BloomTable(num_embeddings=rows, embedding_dim=columns, rows=self.rows, hashes=self.hashes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 8000}, test={**CLICKS, "first_sample": 8000, "num_samples": 2000}
        )
        for hashes in (1, 2):
            rule = CompressionRule(method="own_storage:Bloom", arguments={"rows": 40, "hashes": hashes})
            run = Run(data=data, output=f"{folder}/{hashes}", model=RunModel(compression=(rule,)))
            print(f"{hashes} hashes into 40 rows: log loss {train(run)['test']['logloss']:.4f} on data.test")
