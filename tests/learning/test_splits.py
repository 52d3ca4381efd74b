"""Which measurements train, choose and judge; and what two measurements of a case differ by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.learning.splits import noise_floor_of, repeat_differences, split


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(0, 9))
def test_every_measurement_is_in_one_part_and_a_case_too(case: list[int], seed: int):
    parts = np.array(split(np.array(case), seed))
    assert (parts.sum(axis=0) == 1).all()
    where = parts.argmax(axis=0)
    assert len({(number, part) for number, part in zip(case, where.tolist(), strict=True)}) == len(set(case))


def test_parts_are_eight_one_and_one_tenth_and_follow_the_seed():
    cases = np.arange(1000)
    assert [int(part.sum()) for part in split(cases, 0)] == [800, 100, 100]
    assert not np.array_equal(split(cases, 0)[0], split(cases, 1)[0])


def test_repeats_are_found_wherever_they_are():
    seconds = np.array([[1.0, 4.0], [9.0, 9.0], [1.5, 2.0]])
    assert repeat_differences(np.array([7, 3, 7]), seconds).tolist() == [[0.5, 0.5]]
    floor = noise_floor_of(np.array([0.1, 0.2, 0.6]))
    assert (floor.pairs, floor.median, floor.mean) == (3, 0.2, pytest.approx(0.3))
    assert noise_floor_of(np.empty(0)).median is None
