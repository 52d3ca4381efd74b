"""Sampled workloads: the same everywhere, like the report that they are distilled from, read like published batches."""

import hashlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.files import dump_json
from recsmith.workloads import Table, workload_from_raw, workload_to_raw
from recsmith.workloads.reuse import DEFAULT_ZIPF
from recsmith.workloads.sample import POOL_SHA256, AccessRule, TableKind, sample_workload, shared_pool, table_population
from recsmith.workloads.zipf import reads_per_bin, zipf_reuse_bins, zipf_unique_rows

BATCH = 65_536
PUBLISHED_RATIO = 128_435_723 / 887_017_990  # facebookresearch/dlrm_datasets, embedding_bag/2021, fbgemm_t856_bs65536

seeds = st.integers(0, 2**32)
counts = st.integers(1, 60)


def columns(tables: tuple[Table, ...]) -> np.ndarray:
    """Rows, dims, ids per sample and exponents, (4, N)."""
    zipf = [table.access.zipf for table in tables if table.access]
    ids = [table.features[0].pooling_factor for table in tables]
    return np.array([[t.num_embeddings for t in tables], [t.embedding_dim for t in tables], ids, zipf], dtype=float)


# --- samples ------------------------------------------------------------------------------------------------------


@given(few=counts, more=counts, seed=seeds)
def test_the_first_tables_do_not_depend_on_how_many_follow(few: int, more: int, seed: int):
    tables = sample_workload(few + more, seed).tables
    assert sample_workload(few, seed).tables == tables[:few]
    assert [table.name for table in tables] == [f"table_{i:04d}" for i in range(few + more)]


@given(count=counts, seed=seeds)
def test_tables_stay_within_the_report(count: int, seed: int):
    known = {dim for kind in table_population().kinds for dim in kind.dims}
    work = sample_workload(count, seed)
    rows, dims, ids, zipf = columns(work.tables)
    assert set(dims) <= known
    assert all(dim % 4 == 0 for dim in known)
    assert 1 <= rows.min() <= rows.max() <= 40_000_000
    assert 0.001 <= ids.min() <= ids.max() <= 1058.092
    assert 0.3 <= zipf.min() <= zipf.max() <= 1.0
    assert {(table.pooling, table.data_type) for table in work.tables} == {("sum", "fp32")}
    assert {(f.num_poolings, f.weighted) for table in work.tables for f in table.features} == {(1.0, False)}


def test_seeds_differ():
    assert len({sample_workload(5, seed).tables for seed in range(20)}) == 20


@given(count=counts, seed=seeds, limit=st.integers(32, 2**33))
def test_max_bytes_passes_over_the_larger_tables_and_changes_no_other(count: int, seed: int, limit: int):
    found = columns(sample_workload(count, seed, max_bytes=limit).tables)
    light = [
        column for column in columns(sample_workload(40 * count, seed).tables).T if column[0] * column[1] * 4 <= limit
    ]
    assert (found[0] * found[1] * 4).max() <= limit
    assert np.array_equal(found[:, : len(light)].T, light[:count])


def test_words_are_taken_over():
    work = sample_workload(3, 7, max_bytes=10**6, batch_size=64, optimizer="sgd")
    assert (work.batch_size, work.optimizer, work.name) == (64, "sgd", "sample-3-7")
    assert work.source.startswith("recsmith workload sample --tables 3 --seed 7 --max-bytes 1000000B; ")
    assert workload_from_raw(workload_to_raw(work), "sample") == work


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({"tables": 0}, "cannot sample 0 tables; ask for at least 1"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"optimizer": "sgdd"}, "no optimizer is called 'sgdd'; did you mean 'sgd'?"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_bytes": 31}, "no table takes at most 31 B: the smallest takes 32 B; allow that much"),
    ],
)
def test_words_that_cannot_be_are_refused(words: dict[str, int], rule: str):
    with pytest.raises(UsageError) as refused:
        sample_workload(**{"tables": 1, "seed": 0, **words})  # type: ignore[arg-type]
    assert rule in str(refused.value)


def test_the_smallest_table_can_be_had():
    assert sample_workload(3, 0, max_bytes=table_population().least_bytes).weight_bytes == 3 * 32


# --- the pool -----------------------------------------------------------------------------------------------------


def test_the_shared_pool_is_frozen():
    pool = shared_pool()
    assert len(pool.tables) == 856
    assert hashlib.sha256(dump_json(workload_to_raw(pool)).encode()).hexdigest() == POOL_SHA256


def test_the_pool_reads_as_many_unique_rows_as_published():
    rows, _, ids, zipf = columns(shared_pool().tables)
    unique = zipf_unique_rows(zipf, rows, BATCH * ids).sum()
    assert unique / (BATCH * ids.sum()) == pytest.approx(PUBLISHED_RATIO, rel=0.05)


def test_the_default_exponent_is_the_one_at_which_the_pool_reads_014_unique_rows_a_lookup():
    rows, _, ids, _ = columns(shared_pool().tables)
    unique = zipf_unique_rows(np.full(len(rows), DEFAULT_ZIPF), rows, BATCH * ids).sum()
    assert unique / (BATCH * ids.sum()) == pytest.approx(0.14, rel=0.01)


def test_the_pools_rows_are_read_as_often_as_published(script: ModuleType, data: Path):
    ratio, published = script.read_counts(str(data / "dlrm_datasets_stats" / "locality_stats_2021.txt"))
    assert ratio == pytest.approx(PUBLISHED_RATIO)
    rows, _, ids, zipf = columns(shared_pool().tables)
    for law, shares, apart in ((zipf_reuse_bins, published[0], 0.05), (reads_per_bin, published[1], 0.11)):
        found = law(zipf, rows, BATCH * ids).sum(axis=0)
        assert np.abs(np.cumsum(found / found.sum()) - np.cumsum(shares)).max() <= apart


@pytest.fixture(scope="module")
def report(script: ModuleType, data: Path) -> np.ndarray:
    """Rows, dims and ids per sample of the production report, (3, 1933)."""
    return script.read_report(str(data / "torchrec_prod1935" / "sharding_stats_example.txt"))


# --- kinds and exponents ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("correlation", "low", "high"), [(-1.0, -1.01, -0.99), (0.0, -0.05, 0.05), (1.0, 0.99, 1.01)])
def test_a_kinds_correlation_couples_rows_and_pooling(correlation: float, low: float, high: float):
    kind = TableKind(dims=(8,), tables=(1,), correlation=correlation, rows=(10, 10_000), pooling=(1.0, 100.0))
    rows, _, ids = kind.draw(np.random.default_rng(0).random((4000, 3)))
    assert low <= np.corrcoef(np.log(rows), np.log(ids))[0, 1] <= high


def test_a_kind_is_drawn_between_its_quantiles_and_its_dims_by_their_counts():
    kind = TableKind(dims=(8, 16), tables=(3, 1), correlation=0.5, rows=(1, 100, 1e6), pooling=(0.0001, 1.0, 4.0))
    rows, dims, ids = kind.draw(np.random.default_rng(0).random((4000, 3)))
    assert np.median(rows) == pytest.approx(100, rel=0.15)
    assert (dims == 8).mean() == pytest.approx(0.75, abs=0.02)
    assert 0.001 == ids.min() < ids.max() <= 4


def test_exponents_fall_with_the_reads_per_row_and_end_at_the_limits():
    rule = AccessRule(batch_size=1000, intercept=0.8, slope=0.5, lowest=0.2, highest=1.1)
    zipf = rule.zipf(np.array([1e9, 1e4, 1e3, 1e2, 10]), np.ones(5))
    assert zipf.tolist() == [1.1, 1.1, 0.8, 0.3, 0.2]


# --- the report ---------------------------------------------------------------------------------------------------


def test_the_shipped_figures_are_what_the_report_gives(script: ModuleType, report: np.ndarray):
    assert script.distil(*report) == table_population().kinds
    assert sum(sum(kind.tables) for kind in table_population().kinds) == report.shape[1] == 1933


def test_a_large_sample_is_like_the_report(script: ModuleType, report: np.ndarray):
    drawn = table_population().sample(20_000, 1)
    for mine, theirs, apart in zip(drawn, report, (0.03, 0.01, 0.03), strict=True):
        assert script.distance(mine, theirs) <= apart
    for a, b in ((0, 1), (0, 2), (1, 2)):
        mine, theirs = (script.rank_correlation(each[a], each[b]) for each in (drawn, report))
        assert mine == pytest.approx(theirs, abs=0.05)
    assert drawn.mean(axis=1) == pytest.approx(report.mean(axis=1), rel=0.05)
