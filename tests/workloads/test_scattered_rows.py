"""Rows that the data scatters: each has its own place, and blocks of them are as busy as they are told to be."""

import numpy as np
import pytest
from support.build import table

from recsmith import AccessProfile
from recsmith._random import ZipfLaw
from recsmith.workloads.row_blocks import access_of_ids
from recsmith.workloads.scattered_rows import scatter, scattered_blocks, scattering_step


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 30, 210, 9_066, 100_000])
def test_each_row_has_its_own_place_on_any_number_of_rows(rows: int) -> None:
    assert sorted(scatter(np.arange(rows), rows).tolist()) == list(range(rows))
    assert 1 <= scattering_step(rows) <= max(1, rows)


def test_the_largest_tables_do_not_overflow() -> None:
    rows = 2**31
    last = int(scatter(np.array([rows - 1]), rows)[0])
    assert last == (rows - 1) * scattering_step(rows) % rows


@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.05, 1.3])
@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_blocks_of_scattered_rows_are_as_busy_as_they_are_told_to_be(zipf: float, ranks: int) -> None:
    rows = 20_000
    ids = ZipfLaw(rows, zipf).ranks(np.random.default_rng(0).random(400_000))
    counts = np.bincount(scatter(ids, rows) // -(-rows // ranks), minlength=ranks)
    stated = AccessProfile(zipf=zipf, hot_rows="in_front")
    counted = access_of_ids(ids[:16_384], rows)
    for access, exactly in ((stated, 0.02), (counted, 0.2)):  # bins of reads double
        told = np.array(scattered_blocks(table("a", rows, 64, access=access))).reshape(-1, 1)
        blocks = told.reshape(ranks, -1).sum(axis=1)
        assert blocks.sum() == pytest.approx(1.0)
        assert blocks.max() == pytest.approx(counts.max() / counts.sum(), rel=exactly)
