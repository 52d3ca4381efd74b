"""Figures of datasets are what one counts by hand."""

import numpy as np
import pytest
from data.sources import NumberedSource
from hypothesis import given
from hypothesis import strategies as st

from recsmith.data import Dataset, JaggedIds, check_data, count_figures
from recsmith.data.figures import repeated_share
from recsmith.errors import CorruptFile


@given(st.lists(st.lists(st.integers(0, 1), max_size=2), min_size=1, max_size=10))
def test_repeated_bags_are_those_of_the_sample_before(bags: list[list[int]]):
    values = np.array([each for bag in bags for each in bag], np.int64)
    made = JaggedIds(values=values, lengths=np.array([len(bag) for bag in bags], np.int32))
    again = sum(one == other for one, other in zip(bags[1:], bags[:-1], strict=True))
    assert repeated_share(made) == pytest.approx(again / len(bags))


def test_figures_count_the_first_samples_and_a_check_counts_all():
    dataset = Dataset(NumberedSource([10] * 6, corrupt=5, max_corrupt=0))
    figures = count_figures(dataset, 12)
    assert (figures.num_samples, figures.counted, figures.corrupt) == (60, 16, 4)
    feature = figures.features[0]
    assert (feature.distinct, feature.largest, feature.mean_ids, feature.repeated) == (16, 19, 1.0, 0.0)
    assert feature.hottest == pytest.approx(1 / 16)
    found = check_data(dataset)
    assert (found.samples, found.corrupt, found.blocks, found.largest_block) == (48, 12, 6, 10)
    assert found.examples == ("line 1 is garbage",) * 3
    empty = Dataset(NumberedSource([]))
    assert (check_data(empty).samples, check_data(empty).problem) == (0, "no sample could be read: the data holds none")
    with pytest.raises(CorruptFile, match="no sample could be read"):
        count_figures(empty, 5)
