"""Widths by popularity."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embeddings.test_transforms import CRITEO
from recsmith._types import Ints
from recsmith.embeddings.mixed_dimension import power_rule
from recsmith.errors import UsageError


def powers_of_two(widths: Ints) -> Ints:
    """The nearest power of two of each width (N,), on a scale of logarithms."""
    return (2 ** np.rint(np.log2(widths))).astype(np.int64)


def mixed_parameters(rows: Sequence[int], widths: Ints) -> int:
    """Parameters of blocks with these widths, projections to the widest included."""
    base = int(widths.max())
    return int(sum(n * d + (d * base if d < base else 0) for n, d in zip(rows, widths.tolist(), strict=True)))


def test_parameters_are_those_of_the_reference_code() -> None:
    """Totals of the authors' solver in facebookresearch/dlrm on Criteo Kaggle; 540,201,232 with 16 columns each."""
    found = [mixed_parameters(CRITEO, power_rule(CRITEO, temperature=t, base_dim=16)) for t in (0.3, 0.2, 0.1)]
    assert found[0] == 33_788_516
    assert [round(540_201_232 / each, 2) for each in found[1:]] == [15.70, 3.98]
    widths = powers_of_two(power_rule(CRITEO, temperature=0.1, base_dim=32))
    assert mixed_parameters(CRITEO, widths) == 270_489_096


rows = st.lists(st.integers(1, 10**7), min_size=1, max_size=8)


@given(rows, st.floats(0, 2), st.sampled_from([4, 16, 64]))
def test_widths_fall_with_rows_and_the_most_popular_has_the_base(
    counts: list[int], temperature: float, base: int
) -> None:
    widths = power_rule(counts, temperature=temperature, base_dim=base)
    order = np.argsort(counts, kind="stable")
    assert (np.diff(widths[order]) <= 0).all()
    assert widths.max() == base
    assert widths.min() >= 1


@given(rows, st.floats(0, 1))
def test_a_budget_is_what_unrounded_widths_add_up_to(counts: list[int], temperature: float) -> None:
    widths = power_rule(counts, temperature=temperature, budget=64.0 * sum(counts))
    assert abs(float((widths * np.array(counts)).sum()) / (64.0 * sum(counts)) - 1) < 0.51 / 32 + len(counts) / 64


def test_base_or_budget_is_given() -> None:
    with pytest.raises(UsageError, match="one of them"):
        power_rule([3], temperature=0.1)
