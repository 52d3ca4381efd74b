"""Smooth approximations of the maximum over ranks: norms so high that the slowest ranks decide.

The seconds of a phase are the maximum of the ranks' loads. A search that minimizes the maximum alone sees no progress
while a second rank is as slow. The norm of all loads, (sum of load ** p) ** (1 / p), falls with every slow rank that
gets faster, and tends to the maximum as the power p grows. Local search minimizes a tangent of it (`SmoothMax`),
annealing the norm itself (`smooth_norm`), and longest-first placement the growth of a power by one piece (`power`).

Legend: W ranks, F phases.
"""

from typing import NamedTuple

import numpy as np

from recsmith._types import Floats

LEAST_LOAD = 1e-300  # seconds: loads are divided by no less, so that idle phases cause no division by zero
LARGEST_POWER = 280  # decimal digits of the largest power: sums over a million ranks stay below a float's 1e308


class SmoothMax(NamedTuple):
    """Local search's objective: sum over phases of weight * sum over ranks of (load / reference) ** sharpness.

    It is the tangent, at the loads it was made from, of the sum of the phases' norms; if it falls, the sum of norms
    falls. With higher sharpness the norm is closer to the slowest rank, and says less about all others.
    """

    reference: Floats  # (F,)
    weight: Floats  # (F,)
    sharpness: int  # 3 * 2 ** i

    @classmethod
    def at(cls, loads: Floats, sharpness: int) -> "SmoothMax":
        """The tangent at loads (F, W)."""
        reference = np.maximum(loads.max(axis=1), LEAST_LOAD)
        total = np.maximum(clipped_power(loads / reference[:, None], sharpness).sum(axis=1), 1.0)
        return cls(reference, reference * total ** (1 / sharpness - 1) / sharpness, sharpness)

    def powers(self, loads: Floats) -> Floats:
        """What each rank adds to the score (..., W), from loads (..., F, W)."""
        ratio = np.maximum(loads, 0.0) / self.reference[:, None]  # rounding may leave slightly negative loads
        return np.einsum("f,...fw->...w", self.weight, clipped_power(ratio, self.sharpness))

    def score(self, loads: Floats) -> Floats:
        """The score (...) of loads (..., F, W)."""
        return self.powers(loads).sum(axis=-1)


def smooth_norm(loads: Floats, sharpness: float) -> tuple[Floats, Floats]:
    """(norm, maximum) over the ranks of loads (..., W), each (...); negative loads, left by rounding, count as 0."""
    slowest = np.maximum(loads.max(axis=-1), 0.0)
    relative = np.maximum(loads, 0.0) / np.maximum(slowest, LEAST_LOAD)[..., None]
    return slowest * (relative**sharpness).sum(axis=-1) ** (1 / sharpness), slowest


def clipped_power(ratio: Floats, exponent: int) -> Floats:
    """`power` with ratios capped so that sums of the powers do not overflow."""
    return power(np.minimum(ratio, 10.0 ** (LARGEST_POWER / exponent)), exponent)


def power(ratio: Floats, exponent: int) -> Floats:
    """Ratio ** exponent by squaring, for exponents 3 * 2 ** i and 2 * 2 ** i: several times faster than `**`."""
    root = 3 if exponent % 3 == 0 else 2
    result = ratio * ratio * ratio if root == 3 else ratio * ratio
    for _ in range((exponent // root).bit_length() - 1):
        result *= result
    return result
