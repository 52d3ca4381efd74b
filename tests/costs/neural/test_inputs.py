"""Inputs of learned cost models, by hand."""

import numpy as np
import pytest
from support.learned_cases import piece_of

from recsmith.costs.neural.inputs import (
    CELL_OCTAVES,
    FIRST_INPUTS,
    INPUTS,
    OPTIMIZERS,
    UNIT,
    WORK,
    cells_of,
    distances,
    figures_of,
    inputs_of,
    work_of,
)
from recsmith.elementary import power


def test_work_and_inputs_of_a_piece_by_hand() -> None:
    """80 ids in 16 bags, 40 different of 1,000 rows, 128 columns of fp32 under rowwise_adagrad."""
    piece = piece_of(80.0, 16.0, 40.0, 1000.0, 128.0)
    work = dict(zip(WORK, (work_of(piece)[0] / UNIT).tolist(), strict=True))
    assert work == pytest.approx({
        "pieces": 1, "bags": 16, "ids": 80, "bag columns": 2048, "id columns": 10240, "rows": 40, "row columns": 5120,
    })  # fmt: skip
    told: dict[str, float] = dict(zip(INPUTS, inputs_of(piece)[0].tolist(), strict=True))
    logs: dict[str, float] = {
        "width": 128,
        "pooling": 80,
        "bags": 16,
        "ids": 80,
        "unique rows": 40,
        "unique bytes": 20480,
        "rows": 1000,
    }
    assert {name: 2 ** (8 * told[name]) - 1 for name in logs} == pytest.approx(logs)
    assert told["unique share"] == 0.5
    words = ("width % 8", "width % 16", "sgd", "adagrad", "rowwise_adagrad", "fp16")
    assert [told[name] for name in words] == [0, 0, 0, 0, 1, 0]


def test_a_piece_without_ids_has_finite_inputs() -> None:
    assert np.isfinite(inputs_of(piece_of(0.0, 0.0, 0.0, 1.0, 4.0))).all()


def _figures(rows: float, pooling: float, columns: float, reads: float = 2.0) -> np.ndarray:
    return figures_of(*(np.array([value]) for value in (rows, pooling * 64, 64.0, columns, pooling * 64 / reads)))


TRAINED = cells_of(np.concatenate([_figures(2.0**20, 4, 64), _figures(2.0**10, 256, 64)]))


def test_distances_are_those_to_the_nearest_of_all_cells():
    """More tables than are worked on at once, some in cells, some on edges, some far from any."""
    drawn = np.random.default_rng(0)
    cells, figures = cells_of(drawn.normal(0, 2, (60, 4))), drawn.integers(-12, 12, (400, 4)) / 4
    worst = np.abs(figures[:, None] - cells).max(axis=2).min(axis=1)
    found = distances(figures, cells)
    np.testing.assert_array_equal(found, power(2.0, CELL_OCTAVES * np.maximum(worst - 0.5, 0.0)))
    assert 20 < (found == 1).sum() < 380


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


def test_inputs_that_were_added_stand_behind_those_of_before() -> None:
    piece = piece_of(80.0, 16.0, 40.0, 1000.0, 128.0)
    adam = piece._replace(optimizer=np.array([OPTIMIZERS.index("adam")]))
    told: dict[str, float] = dict(zip(INPUTS, inputs_of(adam)[0].tolist(), strict=True))
    assert [told[name] for name in ("sgd", "adagrad", "rowwise_adagrad", "adam")] == [0, 0, 0, 1]
    assert inputs_of(piece)[0, FIRST_INPUTS:].tolist() == [0]
    assert INPUTS[FIRST_INPUTS:] == ("adam",)
