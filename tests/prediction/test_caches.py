"""Kernels are predicted by how much data passes through the caches between two uses of theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.prediction.caches import within_step
from recsmith.prediction.graph import Kernel
from recsmith.prediction.machine import load_machine

MIB = 2**20
LOOKUP = Kernel("embedding_forward", (4.0, 4e4, 4e3, 128.0, 1e6, 0.0))


def added(size: float, between: float = 0.0) -> Kernel:
    """Two tensors of so many bytes each, added to a third one."""
    return Kernel("elementwise", (2 * size, size, 2.0, 0.0, 2.0), between)


@given(st.lists(st.floats(1, 1e8), min_size=1, max_size=20))
def test_what_passes_lies_between_a_kernels_data_and_all_data_of_the_step(sizes: list[float]):
    kernels = [*map(added, sizes), LOOKUP]
    known = within_step(kernels)
    whole = known[-1].between  # a lookup's rows are used once in a step
    moved = 3 * sum(sizes) + within_step([LOOKUP])[0].between * 2
    assert whole == pytest.approx(moved / 2)
    for size, kernel in zip(sizes, known, strict=False):
        assert min(3 * size, whole) * (1 - 1e-9) <= kernel.between <= whole * (1 + 1e-9)
    assert [kernel._replace(between=0.0) for kernel in known] == kernels
    assert within_step(known) == known


def test_the_same_kernel_takes_longer_where_more_passes():
    kernels = load_machine("cpu").kernels
    warm, cold = kernels.seconds([added(MIB, MIB), added(MIB, 64 * MIB)])
    assert cold > 1.2 * warm
