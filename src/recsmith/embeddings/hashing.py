"""Hashed tables: every id goes to one of fewer rows, by a fixed hash or a learned one; ids that meet share a vector.

Fixed: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, ICML 2009 (arXiv 0902.2206). Learned:
Ghaemmaghami et al., Learning to Collide: Recommendation System Model Compression with Learned Hash Functions
(arXiv 2203.15837): access frequencies and a learned embedding of few columns decide who shares. That paper publishes
neither code nor constants; those here are our own.

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

SALT = 0x9E3779B97F4A7C15  # of the hash; any fixed word serves
BATCH = 4096  # points that MiniBatchKMeans takes at once
KNOWN = 5  # times; an id that occurs less often has learned little but the labels it was seen with
RARE_ROWS = 8  # at most, that ids which are not known share; trade-off: fewer leave more rows to ids that are
ROUNDS = 20  # of faiss


@noun
class Hashing(EmbeddingTransform):
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
    def parts(self) -> tuple[PhysicalTable, ...]:
        """One table of the rows that are left."""
        return (PhysicalTable(name="hashed", num_embeddings=self.rows, embedding_dim=self.embedding_dim),)

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """One."""
        return (Lookup(name="hashed", part=0),)

    def route(self, ids: JaggedIds) -> tuple[JaggedIds, ...]:
        """The same bags, ids replaced by their rows."""
        check_ids(ids, self.num_embeddings)
        if self.row_of is not None:
            return (renamed(ids, self.row_of(ids.values)),)
        return (renamed(ids, buckets(ids.values, np.array([SALT], np.uint64), self.rows)),)


class Hash(StorageMethod):
    """`factor` times fewer rows, over which a fixed hash distributes the ids."""

    reads = ("factor",)
    dial = Dial(field="factor", low=1.0, high=1e6, by_ratio=True)

    def transform(self, table: LogicalTable) -> EmbeddingTransform:
        """The table in fewer rows."""
        _, rows, columns = table
        left = max(1, round(rows / self.rule.factor))
        return Hashing(num_embeddings=rows, embedding_dim=columns, rows=left, row_of=self._rows(table))

    def _rows(self, table: LogicalTable) -> IdMap | None:
        """The row of each id; None where the fixed hash says it."""
        return None


class LearnedHash(Hash):
    """`factor` times fewer rows; ids that behave alike share one, as a map says which was made from data."""

    reads = ("factor", "maps")
    dial = None

    @classmethod
    def problems(cls, rule: CompressionRule) -> Sequence[str | None]:
        """A map is needed."""
        return (needs_maps(rule),)

    def _rows(self, table: LogicalTable) -> IdMap:
        return map_of(self.rule, table, self.maps)


def learn_hash(
    vectors: Floats, counts: Ints, rows: int, *, private: float = 0.5, known: int = KNOWN, seed: int = 0
) -> IdMap:
    """The row of each id, for a table of `rows` rows.

    vectors: of a cheap embedding that was trained on the task (S, d). counts: how often each id occurs in the training
    data (S,). private: share of the rows that the most frequent ids have for themselves; the other ids are clustered
    into the rest, weighted by their counts. known: ids that occur less often are not clustered, since their vectors
    have learned little but the labels of the training data, which clusters would give away; together with those that
    never occur they are spread over a few rows.

    Raises:
        UsageError: rows or private leave nobody a row, or scikit-learn and faiss are missing.
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
    """Rows of ids that are not known, out of those that are shared; one row is shared by all."""
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
    """The same by faiss."""
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
