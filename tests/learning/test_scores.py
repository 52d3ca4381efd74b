"""Errors of predictions."""

import numpy as np

from recsmith.learning.scores import bands, errors, held_out


def test_groups_of_nearly_equal_work_share_a_band() -> None:
    assert len(set(bands(np.array([1.0, 1.02])).tolist())) == 1
    assert len(set(bands(np.array([1.0, 1.1, 1.3])).tolist())) == 3


def test_scores_by_hand() -> None:
    predicted, measured = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 1.0], [4.0, 4.0]])
    assert errors(predicted, measured).tolist() == [[0, 1], [0.25, 0.25]]
    found = held_out(predicted, measured)
    assert (found.samples, found.median, found.mean, found.tau) == (2, 0.25, 0.25, 1)
    assert (found.forward_median, found.backward_median) == (0.125, 0.625)
