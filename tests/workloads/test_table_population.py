"""The population that tables are drawn from: its kinds and exponents by hand, and the report it was distilled from."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from recsmith.workloads.table_population import AccessRule, TableKind, table_population


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
