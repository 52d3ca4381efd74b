"""Errors by kinds of groups: the heaviest table decides, and few groups are no region."""

import numpy as np
import pytest
from support.learned import groups

from recsmith.learning.costs.learn import names_of, region_name, regions_of


def test_a_region_says_what_kind_of_table_it_is():
    assert region_name(9_999, 10, 33) == "below 10,000 rows, 10 to 100 ids a bag, 33 columns and more"
    assert region_name(1e6, 101, 4) == "1,000,000 rows and more, 100 ids a bag and more, below 33 columns"


def test_the_heaviest_table_decides():
    found = groups(30)
    names = list(names_of(found))
    for i, name in enumerate(names):
        pieces = range(found.start[i], found.start[i + 1])
        heavy = max(pieces, key=lambda p: found.ids[p] * found.dim[p])
        assert name == region_name(found.rows[heavy], found.ids[heavy] / found.batch[i], found.dim[heavy])
    assert len(set(names)) > 3


def test_errors_and_bias_are_of_each_region_alone_the_worst_first():
    names = ["a"] * 6 + ["b"] * 5 + ["c"] * 4
    off = np.array([0.1, -0.1] * 3 + [-0.3] * 5 + [9.0] * 4)
    worst, other = regions_of(names, off)
    assert (worst.name, worst.samples, worst.mean, worst.bias) == ("b", 5, 0.3, -0.3)
    assert (other.name, other.samples) == ("a", 6)
    assert (other.mean, other.bias) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-12))
