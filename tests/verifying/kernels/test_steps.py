"""What a step adds up to, measured and resampled."""

import numpy as np
import pytest

from recsmith.measuring.intervals import draw_visits
from recsmith.verifying.kernels import steps as room
from recsmith.verifying.kernels.steps import median_step, resampled_steps, step_seconds


def test_a_step_waits_for_the_last_to_be_ready_and_for_the_slowest_forward_exchange():
    kernels = np.array([[[1.0, 2.0], [2.0, 3.0]], [[4.0, 2.0], [2.0, 3.0]]])  # two visits, two ranks
    comm = np.array([[0.5, 4.0], [0.25, 1.0]])
    assert step_seconds(kernels, comm).tolist() == [7.5, 10.5]


def test_what_slows_a_whole_visit_falls_out_of_paired_differences():
    kernels = np.array([1.0, 3.0, 1.5, 1.0, 2.0, 1.2, 1.1])[:, None, None] * np.array([[1.0, 2.0], [0.5, 1.0]])
    none, drawn = np.zeros((7, 2, 2)), draw_visits(7)
    first, second = resampled_steps(1.03 * kernels, none, drawn), resampled_steps(kernels, none, drawn)
    assert first / second == pytest.approx(np.full(len(drawn), 1.03))
    assert second.min() < second.max()


def test_resampled_steps_are_those_of_the_drawn_visits(monkeypatch: pytest.MonkeyPatch):
    draw = np.random.default_rng(0)
    kernels, comm = draw.uniform(1, 2, (5, 3, 2)), draw.uniform(0, 1, (5, 3, 2))
    drawn = draw_visits(5, seed=4, resamples=50)
    expected = [median_step(kernels[visits], comm[visits]) for visits in drawn]
    assert resampled_steps(kernels, comm, drawn) == pytest.approx(expected)
    monkeypatch.setattr(room, "MOST_AT_ONCE", 100)
    assert resampled_steps(kernels, comm, drawn) == pytest.approx(expected)
