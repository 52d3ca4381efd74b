"""Workloads of counted data: ids, reads of rows, and batches of distinct bags."""

from pathlib import Path

import numpy as np
import pytest
from data.sources import NumberedSource

from recsmith.data import Dataset, GeneratedFeature, GeneratorSpec, SessionSpec, counted_workload, open_dataset
from recsmith.data.converting import cluster_dataset
from recsmith.data.figures import count_figures
from recsmith.errors import UsageError

SPEC = GeneratorSpec(
    num_samples=16_384,
    features=(
        GeneratedFeature(name="history", num_embeddings=5000, pooling_factor=6.0, zipf=0.0),
        GeneratedFeature(name="item", num_embeddings=800_000, zipf=0.0, duplication=0.0),
    ),
    sessions=SessionSpec(size=16, duplication=0.95),
)
KEPT = 1 / 16 + 15 / 16 * 0.05  # samples of a session whose bag was drawn anew


def test_counted_figures_of_sessions_are_what_was_planted(tmp_path: Path):
    cluster_dataset(open_dataset(SPEC), tmp_path / "out")
    figures = count_figures(open_dataset(tmp_path / "out"), 16_384, 1024)
    history, item = figures.features
    assert history.duplicates == pytest.approx(1 / KEPT, rel=0.03)
    assert item.duplicates < 2
    assert figures.sessions is not None
    assert (figures.sessions.samples, figures.sessions.side_by_side) == (16, 16)
    assert item.reuse == pytest.approx(16_384 / item.distinct)
    assert figures.stored is not None
    assert (history.stored, item.stored) == (figures.stored.columns["history"], figures.stored.columns["item"])
    assert sum(figures.stored.columns.values()) < figures.stored.bytes
    shuffled = count_figures(open_dataset(SPEC), 16_384, 1)
    assert shuffled.features[0].duplicates == 1, "a batch of one sample repeats nothing"


def test_deduplicated_lookups_are_those_of_distinct_bags():
    plain, fewer = (
        counted_workload(open_dataset(SPEC), batch_size=1024, samples=16_384, deduplicate=each)
        for each in (False, True)
    )
    assert [table.features[0].batch_size for table in plain.tables] == [None, None]
    assert plain.tables[0].features[0].pooling_factor == 6.0
    found = fewer.tables[0].features[0]
    assert found.batch_size == pytest.approx(1024 * KEPT, rel=0.03)
    assert found.pooling_factor == 6.0
    access = fewer.tables[0].access
    assert access is not None
    assert access.lookups == pytest.approx(16_384 * 6 * KEPT, rel=0.03)
    assert access.unique_rows == plain.tables[0].access.unique_rows, "the same rows are read, less often"  # pyright: ignore
    assert fewer.tables[1].features[0].batch_size is None, "an item does not repeat"
    assert plain.tables[1].access is not None
    assert np.sum(plain.tables[1].access.reuse_bins or ()) == pytest.approx(1)


def test_data_that_cannot_be_counted_is_refused():
    with pytest.raises(UsageError, match="the rows of feature 'number' are not known"):
        counted_workload(Dataset(NumberedSource([100])), batch_size=10, samples=10)
    with pytest.raises(UsageError, match="the data holds no samples"):
        counted_workload(Dataset(NumberedSource([])), batch_size=10, samples=10)
