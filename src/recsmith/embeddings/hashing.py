"""Hashed tables: ids are mapped to fewer rows by a fixed or a learned hash; ids with the same row share a vector.

Fixed: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009 (arXiv 0902.2206). Learned:
Ghaemmaghami et al., Learning to Collide: Recommendation System Model Compression with Learned Hash Functions
(arXiv 2203.15837): access frequencies and a trained embedding of few columns decide which ids share a row. That paper
publishes neither code nor constants; the constants here are our own.

S ids of a table, d columns of the cheap embedding
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from recsmith._install import CLUSTERING
from recsmith._random import buckets
from recsmith._types import Floats, Ints, noun
from recsmith.data import JaggedIds
from recsmith.embeddings.compression import CompressionRule, Dial, LogicalTable, StorageMethod, map_of, needs_maps
from recsmith.embeddings.id_maps import IdMap
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, PhysicalTable, check_ids, renamed
from recsmith.errors import UsageError, check_rules

SALT = 0x9E3779B97F4A7C15  # salt of the fixed hash; any fixed word would do
BATCH = 4096  # points in a batch of MiniBatchKMeans
KNOWN = 5  # occurrences; the vector of a rarer id has learned little but the labels it was seen with
RARE_ROWS = 8  # largest number of rows shared by rarer ids; trade-off: fewer leave more rows to frequent ids
ROUNDS = 20  # iterations of k-means in faiss


@noun
class Hashing(EmbeddingTransform):
    """A table stored in `rows` rows. row_of: the row of each id; None: a fixed hash distributes the ids."""

    num_embeddings: int
    embedding_dim: int
    rows: int
    row_of: IdMap | None = None

    def __post_init__(self) -> None:
        """Check that `rows` is between 1 and the table's rows, and that the map fits the table."""
        check_rules(
            None
            if 0 < self.rows <= self.num_embeddings
            else f"rows is {self.rows} for a table of {self.num_embeddings}; give 1 to {self.num_embeddings}"
        )
        if self.row_of is not None:
            self.row_of.check(self.num_embeddings, self.rows)

    @property
    def parts(self) -> tuple[PhysicalTable, ...]:
        """The one table of `rows` rows."""
        return (PhysicalTable(name="hashed", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """The one lookup."""
        return (Lookup(name="hashed", part=0),)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags, with ids replaced by their rows."""
        check_ids(ids, self.num_embeddings)
        if self.row_of is not None:
            return (renamed(ids, self.row_of(ids.values)),)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)


class Hash(StorageMethod):
    """Stores a table in `factor` times fewer rows, over which a fixed hash distributes the ids."""

    reads = ("factor",)
    dial = Dial(field="factor", low=1.0, high=1e6, by_ratio=True)

    def transform(self, table: LogicalTable) -> EmbeddingTransform:
        """The table stored in rows / factor rows."""
        _, rows, columns = table
        left = max(1, round(rows / self.rule.factor))
        return Hashing(num_embeddings=rows, embedding_dim=columns, rows=left, row_of=self._rows(table))

    def _rows(self, table: LogicalTable) -> IdMap | None:
        """The row of each id; None: the fixed hash determines it."""
        return None


class LearnedHash(Hash):
    """Stores a table in `factor` times fewer rows, shared by similar ids according to a map made from data."""

    reads = ("factor", "maps")
    dial = None

    @classmethod
    def problems(cls, rule: CompressionRule) -> Sequence[str | None]:
        """An error text if the rule names no file of id maps."""
        return (needs_maps(rule),)

    def _rows(self, table: LogicalTable) -> IdMap:
        return map_of(self.rule, table, self.maps)


def learn_hash(
    vectors: Floats, counts: Ints, rows: int, *, private: float = 0.5, known: int = KNOWN, seed: int = 0
) -> IdMap:
    """Learn the row of each id, for a table of `rows` rows.

    Args:
        vectors: of each id in a cheap embedding that was trained on the task (S, d).
        counts: how often each id occurs in the training data (S,).
        rows: number of rows of the hashed table.
        private: share of the rows that are reserved for the most frequent ids, one each. The other ids are clustered
            into the remaining rows, weighted by their counts.
        known: ids that occur less often are not clustered, but spread over a few rows. Their vectors have learned
            little but the labels of the training data, which clusters would leak.
        seed: random seed of the clustering.

    Raises:
        UsageError: rows or private is out of range, or neither scikit-learn nor faiss is installed.
    """
    ids = len(counts)
    own = round(rows * private)
    check_rules(
        None if 0 < rows < ids else f"rows is {rows} for {ids} ids; give 1 to {ids - 1}",
        None if 0 <= own < rows else f"private is {private}; give 0 to below 1, so that rows are left to share",
    )
    order = np.argsort(-counts, kind="stable")
    row_of = np.empty(ids, dtype=np.int32)
    row_of[order[:own]] = np.arange(own)
    rest = order[own:]
    often = counts[rest] >= max(1, known)
    seen, rare = rest[often], rest[~often]
    few = _rare_rows(rows - own, len(seen), len(rare))
    row_of[rare] = own + rare % max(1, few)
    if len(seen):
        row_of[seen] = own + few + _clusters(vectors[seen], counts[seen], rows - own - few, seed)
    return IdMap(numbers=row_of)


def _rare_rows(shared: int, seen: int, rare: int) -> int:
    """How many of the shared rows are for rare ids; a single shared row is shared by all ids."""
    if not rare:
        return 0
    if shared == 1:
        return 0 if seen else 1
    return min(RARE_ROWS, max(1, shared // 2)) if seen else shared


def _clusters(vectors: Floats, counts: Ints, clusters: int, seed: int) -> Ints:
    """The cluster of each vector (n,), by k-means with counts as weights."""
    if len(vectors) <= clusters:
        return np.arange(len(vectors))
    try:
        cluster: Any = import_module("sklearn.cluster")
    except ImportError:
        return _clusters_of_faiss(vectors, counts, clusters, seed)
    means = cluster.MiniBatchKMeans(n_clusters=clusters, random_state=seed, batch_size=BATCH, n_init=1)
    means.fit(vectors, sample_weight=counts.astype(np.float64))
    return np.asarray(means.predict(vectors), dtype=np.int64)


def _clusters_of_faiss(vectors: Floats, counts: Ints, clusters: int, seed: int) -> Ints:
    """The cluster of each vector (n,), by k-means of faiss."""
    try:
        faiss: Any = import_module("faiss")
    except ImportError:
        raise UsageError(
            f"a learned hash is clustered by scikit-learn or by faiss, and neither is installed; {CLUSTERING}"
        ) from None
    points = np.ascontiguousarray(vectors, dtype=np.float32)
    means = faiss.Kmeans(points.shape[1], clusters, niter=ROUNDS, seed=seed, min_points_per_centroid=1)
    means.train(points, weights=counts.astype(np.float32))
    return np.asarray(means.index.search(points, 1)[1][:, 0], dtype=np.int64)
