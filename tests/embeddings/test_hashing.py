"""Learned hashes: who shares a row, and who has one alone."""

import sys

import numpy as np
import pytest

from recsmith.embeddings import learn_hash
from recsmith.embeddings.hashing import RARE_ROWS
from recsmith.errors import UsageError

IDS, GROUPS = 400, 10


def planted() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of ids in groups, far from each other; the group of each id, and how often it occurs."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, GROUPS, IDS)
    vectors = rng.normal(size=(GROUPS, 3))[group] * 10 + rng.normal(size=(IDS, 3)) * 0.01
    return vectors, group, rng.integers(1, 30, IDS)


@pytest.mark.parametrize("package", ["sklearn", "faiss"])
def test_ids_of_a_group_share_a_row_and_frequent_ones_have_their_own(package: str, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(package)
    if package == "faiss":
        monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    vectors, group, counts = planted()
    counts[:5] = 1000
    row = learn_hash(vectors, counts, 60, private=0.1, known=5).numbers
    assert sorted(row[np.argsort(-counts, kind="stable")[:6]].tolist()) == list(range(6))
    shared = np.flatnonzero((row >= 6) & (counts >= 5))
    for each in np.unique(row[shared]):
        assert len(set(group[shared[row[shared] == each]].tolist())) == 1
    rare = np.flatnonzero(counts < 5)
    assert set(row[rare].tolist()) == set(range(6, 6 + RARE_ROWS))
    assert not set(row[rare].tolist()) & set(row[counts >= 5].tolist())


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
def test_every_id_has_a_row_of_the_table(rows: int):
    pytest.importorskip("sklearn")
    vectors, _, counts = planted()
    for found in (counts, counts * 0, counts * 0 + 100):
        row = learn_hash(vectors, found, rows, private=0.3).numbers
        assert row.min() >= 0
        assert row.max() < rows


def test_what_clusters_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    for name in ("sklearn.cluster", "faiss"):
        monkeypatch.setitem(sys.modules, name, None)
    vectors, _, counts = planted()
    with pytest.raises(UsageError, match="neither is installed; pip install 'scikit-learn"):
        learn_hash(vectors, counts, 20)
