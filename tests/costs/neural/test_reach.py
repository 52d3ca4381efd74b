"""How far a table lies from training data: figures count together, and by factors."""

import numpy as np
import pytest

from recsmith.costs.neural.reach import cells_of, distances, figures_of


def _figures(rows: float, pooling: float, columns: float, reads: float = 2.0) -> np.ndarray:
    return figures_of(*(np.array([value]) for value in (rows, pooling * 64, 64.0, columns, pooling * 64 / reads)))


TRAINED = cells_of(np.concatenate([_figures(2.0**20, 4, 64), _figures(2.0**10, 256, 64)]))


def test_large_tables_and_heavy_ones_do_not_make_large_heavy_ones_known():
    assert distances(_figures(2.0**20, 4, 64), TRAINED) == 1
    assert distances(_figures(2.0**10, 256, 64), TRAINED) == 1
    assert distances(_figures(2.0**20, 256, 64), TRAINED) == pytest.approx(2.0**5)  # three cells of 4 from the nearest


def test_the_distance_is_a_factor_beyond_the_edge_of_the_nearest_cell():
    assert distances(_figures(2.0**21, 8, 32), TRAINED) == pytest.approx(1)
    assert distances(_figures(2.0**22, 4, 64), TRAINED) == pytest.approx(2)
    assert distances(_figures(2.0**20, 4, 64 * 1024), TRAINED) == pytest.approx(2.0**9)


def test_tables_that_read_nothing_have_figures():
    assert np.isfinite(_figures(1.0, 0.0, 4)).all()
