"""Batches as tensors."""

import numpy as np
import pytest

pytest.importorskip("torchrec")

from recsmith.training.batches import ALIGNMENT, aligned


def test_values_lie_where_a_tensor_of_its_own_would():
    """Wherever a batch begins in its block of data: on some processors products depend on where memory begins."""
    block = np.arange(240, dtype=np.float32).reshape(80, 3)
    places = {block[first:].ctypes.data % ALIGNMENT for first in range(16)}
    assert len(places) > 4
    for first in range(16):
        found = aligned(block[first : first + 8])
        assert found.data_ptr() % ALIGNMENT == 0
        assert (found.numpy() == block[first : first + 8]).all()
