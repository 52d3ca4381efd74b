"""Rank correlation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.measuring.statistics import Interval, bootstrap_median, kendall_tau


def test_values_that_agree_leave_no_doubt():
    assert bootstrap_median(np.full(7, 2.0)) == Interval(value=2.0, low=2.0, high=2.0)


def test_the_interval_lies_around_the_median_within_the_values():
    values = np.array([1.0, 5.0, 2.0, 4.0, 3.0, 100.0, 2.5])
    found = bootstrap_median(values)
    assert found.value == 3.0
    assert 1.0 < found.low < 3.0 < found.high < 100.0


def test_the_seed_decides():
    values = np.random.default_rng(1).normal(size=201)
    assert bootstrap_median(values, 3) == bootstrap_median(values, 3)
    assert bootstrap_median(values, 3) != bootstrap_median(values, 4)


def test_intervals_hold_the_median_about_as_often_as_they_say():
    """Of seven values they are narrow: about nine in ten."""
    draw = np.random.default_rng(0)
    held = [bootstrap_median(draw.normal(size=7)).holds_zero for _ in range(300)]
    assert 0.83 <= np.mean(held) <= 0.95


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
