"""Zipf ids follow the law, and shuffled rows are all rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith._random import HEAD, RowShuffle, ZipfLaw, poisson_lengths


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("rows", [1, 50, HEAD + 1, 2_000_000])
def test_ids_follow_the_law(rows: int, exponent: float):
    draws = 200_000
    law, exact = ZipfLaw(rows, exponent), np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    exact /= exact.sum()
    ranks = law.ranks((np.arange(draws) + 0.5) / draws)  # evenly spread: no chance is involved
    assert ranks.min() >= 0
    assert ranks.max() < rows
    sums = np.cumsum(exact)
    for rank in {0, rows // 20, min(HEAD - 1, rows - 1), min(HEAD, rows - 1), rows // 2}:
        assert np.mean(ranks <= rank) == pytest.approx(sums[rank], abs=1.01 / draws + 1e-8)
    assert np.allclose(law.chances(np.arange(rows)), exact, rtol=1e-7, atol=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_shuffled_rows_are_all_rows_once(rows: int, salt: int):
    shuffled = RowShuffle(rows, salt)(np.arange(rows))
    assert np.array_equal(np.sort(shuffled), np.arange(rows))


def test_the_most_read_rows_lie_anywhere():
    hottest = np.stack([RowShuffle(1000, salt)(np.arange(10)) for salt in range(400)])
    assert abs(hottest.mean() - 499.5) < 5 * 288.7 / np.sqrt(hottest.size)
    assert abs(np.corrcoef(hottest[:, 0], hottest[:, 1])[0, 1]) < 0.2


@pytest.mark.parametrize("mean", [0.0, 0.4, 3.5, 200.0])
def test_lengths_are_poisson(mean: float):
    lengths = poisson_lengths(mean, (np.arange(100_000) + 0.5) / 100_000)
    assert lengths.mean() == pytest.approx(mean, abs=1e-3 * (1 + mean))
    assert lengths.var() == pytest.approx(mean, rel=0.01, abs=1e-6)
    assert np.mean(lengths == 0) == pytest.approx(np.exp(-mean), abs=1e-4)
