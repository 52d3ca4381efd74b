"""The cheapest assignment within memory, against all assignments."""

from itertools import product

import numpy as np
import pytest

ortools = pytest.importorskip("ortools")

from recsmith.planners.solver.linear_assignment import NEAR, LinearAssignment  # noqa: E402


def cheapest_of_all(size: np.ndarray, free: np.ndarray, costs: np.ndarray) -> float:
    """The least sum of costs of any assignment within memory; infinite for none."""
    every = np.array(list(product(range(len(free)), repeat=len(size))))
    held = (every[:, :, None] == np.arange(len(free))) * size[:, None]
    sums = np.take_along_axis(costs[None], every[:, :, None], axis=2)[..., 0].sum(axis=1)
    return float(np.where((held.sum(axis=1) <= free).all(axis=1), sums, np.inf).min())


def test_it_is_the_cheapest_of_all_assignments_within_memory_again_and_again() -> None:
    random, bound, impossible = np.random.default_rng(0), 0, 0
    for _ in range(12):
        size = random.integers(1, 2**40, 6)
        free = random.integers(size.max() // 2, int(size.sum() * 0.7), 3)
        asked = LinearAssignment(size, free)
        for _ in range(3):
            costs = random.normal(size=(6, 3)) * 1e-4
            least, found = cheapest_of_all(size, free, costs), asked.cheapest(costs)
            if found is None:
                impossible += 1
                assert least == np.inf
                continue
            assert (np.bincount(found, weights=size, minlength=3) <= free).all()
            total, width = costs[np.arange(6), found].sum(), np.ptp(costs, axis=1).sum()
            assert least * (1 - 1e-9) - 1e-12 <= total <= least + 2 * NEAR * width
            bound += bool((costs.argmin(axis=1) != found).any())
    assert bound > 5
    assert impossible > 0
