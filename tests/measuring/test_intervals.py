"""Intervals of medians: where they lie, how often they hold the truth, and that the seed decides them."""

import numpy as np

from recsmith.measuring.intervals import Interval, bootstrap_median


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
