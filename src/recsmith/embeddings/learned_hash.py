"""A learned hash: ids that behave alike share a row, and the ids that are asked for most have rows of their own.

Ghaemmaghami et al., Learning to Collide: Recommendation System Model Compression with Learned Hash Functions
(arXiv 2203.15837): access frequencies and a learned embedding of few columns decide who shares. The paper publishes
neither code nor constants; those here are our own.

S ids of a table, d columns of the cheap embedding
"""

from importlib import import_module
from typing import Any

import numpy as np

from recsmith._install import CLUSTERING
from recsmith._types import Floats, Ints
from recsmith.embeddings.id_maps import IdMap
from recsmith.errors import UsageError, check_rules

BATCH = 4096  # points that MiniBatchKMeans takes at once
KNOWN = 5  # times; an id that occurs less often has learned little but the labels it was seen with
RARE_ROWS = 8  # at most, that ids which are not known share; trade-off: fewer leave more rows to ids that are
ROUNDS = 20  # of faiss


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
