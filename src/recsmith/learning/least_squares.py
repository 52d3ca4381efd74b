"""Least squares with weights of 0 or more. Legend: N equations, f figures."""

import numpy as np

from recsmith._types import Floats

STEPS = 3000  # of the descent at most; it ends earlier where it no longer moves
STILL = 1e-9  # change of a weight, relative to the largest, below which nothing moves


def non_negative_fit(figures: Floats, target: Floats) -> Floats:
    """Weights (f,) of 0 or more whose sums of figures (N, f) are nearest to a target (N,), by coordinate descent."""
    normal, right = figures.T @ figures, figures.T @ target
    weights = np.zeros(figures.shape[1])
    for _ in range(STEPS):
        before = weights.copy()
        for i in np.flatnonzero(normal.diagonal() > 0):
            weights[i] = max(0.0, weights[i] + (right[i] - normal[i] @ weights) / normal[i, i])
        if np.abs(weights - before).max() <= STILL * weights.max(initial=0.0):
            break
    return weights
