"""Errors and rank correlation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.learning.scores import bands, errors, held_out, kendall_tau

RANKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 1)), min_size=2, max_size=12)


def _slowly(pairs: list[tuple[int, int, int]]) -> float:
    """tau-b of pairs within a band, by its definition."""
    inside = [(a, b) for a, b in itertools.combinations(pairs, 2) if a[2] == b[2]]
    agree = sum(int(np.sign(a[0] - b[0]) * np.sign(a[1] - b[1])) for a, b in inside)
    first, second = (sum(a[i] != b[i] for a, b in inside) for i in (0, 1))
    return agree / (first * second) ** 0.5 if first * second else float("nan")


@given(RANKS)
def test_tau_is_kendalls_within_bands(pairs: list[tuple[int, int, int]]) -> None:
    first, second, band = np.array(pairs).T
    assert kendall_tau(first, second, band) == pytest.approx(_slowly(pairs), nan_ok=True)
    assert kendall_tau(first, second) == pytest.approx(_slowly([(a, b, 0) for a, b, _ in pairs]), nan_ok=True)


def test_tau_of_more_than_a_block_of_rows() -> None:
    many = np.arange(2500.0)
    assert kendall_tau(many, many**2) == pytest.approx(1)
    assert kendall_tau(many, -many) == pytest.approx(-1)


def test_groups_of_nearly_equal_work_share_a_band() -> None:
    assert len(set(bands(np.array([1.0, 1.02])).tolist())) == 1
    assert len(set(bands(np.array([1.0, 1.1, 1.3])).tolist())) == 3


def test_scores_by_hand() -> None:
    predicted, measured = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 1.0], [4.0, 4.0]])
    assert errors(predicted, measured).tolist() == [[0, 1], [0.25, 0.25]]
    found = held_out(predicted, measured)
    assert (found.samples, found.median, found.mean, found.tau) == (2, 0.25, 0.25, 1)
    assert (found.forward_median, found.backward_median) == (0.125, 0.625)
