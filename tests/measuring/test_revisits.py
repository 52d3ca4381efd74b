"""Which case a place of a run measures: every case once, and every tenth place one from half as far into the run."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from recsmith.measuring.revisits import case_of


@given(st.integers(0, 10**7))
def test_a_case_is_sampled_again_after_it_was_new(sample: int):
    number, before = case_of(sample)
    assert before == (sample % 10 == 9)
    first = number // 9 * 10 + number % 9
    assert case_of(first) == (number, 0)
    assert first <= sample
    assert before or first == sample


def test_every_tenth_sample_is_another_case_seen_before():
    seen = Counter(number for number, _ in map(case_of, range(10_000)))
    assert sorted(seen) == list(range(9_000))
    assert set(seen.values()) == {1, 2}
