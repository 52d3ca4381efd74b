"""A learned hash: ids that behave alike share a row, and the ids that are asked for most have rows of their own.

Ghaemmaghami et al., Learning to Collide: Recommendation System Model Compression with Learned Hash Functions
(arXiv 2203.15837): access frequencies and a learned embedding of few columns decide who shares. The paper publishes
neither code nor constants; those here are our own.

S ids of a table, d columns of the cheap embedding
"""

from importlib import import_module
from typing import Any

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.embeddings.id_maps import IdMap
from recsmith.errors import UsageError, check_rules

BATCH = 4096  # points that MiniBatchKMeans takes at once


def learn_hash(vectors: Floats, counts: Ints, rows: int, *, private: float = 0.5, seed: int = 0) -> IdMap:
    """The row of each id, for a table of `rows` rows.

    vectors: of a cheap embedding that was trained on the task (S, d). counts: how often each id occurs in the training
    data (S,). private: share of the rows that the most frequent ids have for themselves; the other ids are clustered
    into the rest, weighted by their counts. Ids that never occur have learned nothing: they are
    spread evenly over the rest.

    Raises:
        UsageError: rows or private leave nobody a row, or scikit-learn is missing.
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
    seen, unseen = rest[counts[rest] > 0], rest[counts[rest] == 0]
    row_of[seen] = own + _clusters(vectors[seen], counts[seen], rows - own, seed)
    row_of[unseen] = own + unseen % (rows - own)
    return IdMap(numbers=row_of)


def _clusters(vectors: Floats, counts: Ints, clusters: int, seed: int) -> Ints:
    """The cluster of each vector (n,), by k-means with counts as weights."""
    if len(vectors) <= clusters:
        return np.arange(len(vectors))
    try:
        cluster: Any = import_module("sklearn.cluster")
    except ImportError:
        raise UsageError("a learned hash is clustered by scikit-learn; pip install scikit-learn") from None
    means = cluster.MiniBatchKMeans(n_clusters=clusters, random_state=seed, batch_size=BATCH, n_init=1)
    means.fit(vectors, sample_weight=counts.astype(np.float64))
    return np.asarray(means.predict(vectors), dtype=np.int64)
