"""Seconds of a step from those of its kernels and collectives, where all ranks begin each exchange together.

Legend: V visits, W ranks of a plan, B resamples; the last axis of kernels and collectives is forward, backward.
"""

import numpy as np

from recsmith._types import Floats, Ints

MOST_AT_ONCE = 2**22  # seconds that are resampled together: 32 MiB of each array, whatever B is


def step_seconds(kernels: Floats, comm: Floats) -> Floats:
    """Seconds of steps (...) from those of kernels and collectives (..., W, 2), each forward and backward.

    A rank is ready after its backward collectives, its backward and its forward kernels; the forward collectives begin
    when all are (docs/cost-models.md).
    """
    ready = comm[..., 1] + kernels[..., 1] + kernels[..., 0]
    return ready.max(axis=-1) + comm[..., 0].max(axis=-1)


def median_step(kernels: Floats, comm: Floats) -> float:
    """Seconds of the step of a plan whose ranks take their medians over visits; kernels and comm (V, W, 2).

    Not the median of the visits' steps: in each visit the rank that was disturbed most is the slowest, and the more
    even a plan is the longer that makes it.
    """
    return float(step_seconds(np.median(kernels, axis=0), np.median(comm, axis=0)))


def resampled_steps(kernels: Floats, comm: Floats, drawn: Ints) -> Floats:
    """`median_step` (B,) of the visits that were drawn (B, V); kernels and comm (V, W, 2)."""
    found = np.empty(len(drawn))
    size = max(1, MOST_AT_ONCE // kernels.size)
    for start in range(0, len(drawn), size):
        some = drawn[start : start + size]
        ranks, links = (np.median(seconds[some], axis=1) for seconds in (kernels, comm))
        found[start : start + size] = step_seconds(ranks, links)
    return found
