"""What local search lowers: a smooth stand-in of the step.

In each phase it is the norm of all loads to a power so high that the slowest ranks decide.

Legend: W ranks, F phases.
"""

from typing import NamedTuple

import numpy as np

from recsmith._types import Floats


class SmoothMax(NamedTuple):
    """What is lowered: sum over phases of weight * sum over ranks of (load / reference) ** sharpness.

    It is the tangent, at the loads it was made from, of the sum of norms; where it falls, the sum of norms falls. The
    sharper, the nearer the norm to the slowest rank, and the less it says of all others.
    """

    reference: Floats  # (F,)
    weight: Floats  # (F,)
    sharpness: int  # 3 * 2 ** i

    @classmethod
    def at(cls, loads: Floats, sharpness: int) -> "SmoothMax":
        """The aim at loads (F, W)."""
        reference = np.maximum(loads.max(axis=1), 1e-300)
        total = np.maximum(sharpen(loads / reference[:, None], sharpness).sum(axis=1), 1.0)
        return cls(reference, reference * total ** (1 / sharpness - 1) / sharpness, sharpness)

    def powers(self, loads: Floats) -> Floats:
        """What each rank adds to the score (..., W), from loads (..., F, W)."""
        ratio = np.maximum(loads, 0.0) / self.reference[:, None]  # rounding may leave less than nothing
        return np.einsum("f,...fw->...w", self.weight, sharpen(ratio, self.sharpness))

    def score(self, loads: Floats) -> Floats:
        """The score (...) of loads (..., F, W)."""
        return self.powers(loads).sum(axis=-1)


def sharpen(ratio: Floats, sharpness: int) -> Floats:
    """A power (3 * 2 ** i) of ratios that are not negative, by squaring; hopeless ones are cut, so sums stay finite."""
    ratio = np.minimum(ratio, 10.0 ** (280 / sharpness))
    power = ratio * ratio * ratio
    for _ in range((sharpness // 3).bit_length() - 1):
        power *= power
    return power
