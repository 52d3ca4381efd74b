"""The smoothed maximum: powers by squaring, the norm between maximum and sum, and its tangent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from recsmith.planners.search.smooth_max import SmoothMax, clipped_power, power, smooth_norm

LOADS = arrays(np.float64, (2, 5), elements=st.floats(1e-6, 1e-2))


@pytest.mark.parametrize("exponent", [8, 24, 96, 384])
def test_powers_by_squaring_are_powers(exponent: int) -> None:
    ratio = np.array([0.0, 0.3, 0.99, 1.0, 1.01])
    np.testing.assert_allclose(power(ratio, exponent), ratio**exponent, rtol=1e-12)
    assert np.isfinite(clipped_power(np.array([1e300] * 1000), exponent).sum())


@given(LOADS, st.sampled_from([24.0, 384.0]))
def test_the_norm_lies_above_the_maximum_and_tends_to_it(loads: np.ndarray, sharpness: float) -> None:
    norm, slowest = smooth_norm(loads, sharpness)
    assert (slowest == loads.max(axis=1)).all()
    assert (norm >= slowest * (1 - 1e-12)).all()
    assert (norm <= slowest * 5 ** (1 / sharpness) * (1 + 1e-12)).all()


def test_negative_loads_and_idle_phases_count_nothing() -> None:
    norm, slowest = smooth_norm(np.array([[-1e-20, 0.0], [2.0, -1.0]]), 24.0)
    assert (norm.tolist(), slowest.tolist()) == ([0.0, 2.0], [0.0, 2.0])


@given(LOADS, st.integers(0, 1), st.integers(0, 4))
def test_the_score_changes_as_the_norm_does(loads: np.ndarray, phase: int, rank: int) -> None:
    """SmoothMax is the tangent of the summed norms: for a small change of one load both change alike."""
    objective, step = SmoothMax.at(loads, 24), 1e-6 * loads[phase].max()
    after = loads.copy()
    after[phase, rank] += step
    norms = [float(smooth_norm(each, 24.0)[0].sum()) for each in (loads, after)]
    rise = float(objective.score(after) - objective.score(loads))
    assert rise == pytest.approx(norms[1] - norms[0], rel=1e-2, abs=1e-4 * step)


def test_the_slowest_rank_adds_most() -> None:
    loads = np.array([[1.0, 3.0, 2.0], [5.0, 1.0, 1.0]])
    powers = SmoothMax.at(loads, 24).powers(loads)
    assert powers.shape == (3,)
    assert powers.argmax() == 0
    assert powers[2] < powers[1] / 100
