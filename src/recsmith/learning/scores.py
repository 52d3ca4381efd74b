"""How good predictions are: relative errors and Kendall's tau. Legend: N predictions."""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural.files import HeldOut
from recsmith.measuring.rank_correlation import kendall_tau

TINY = 1e-300  # in place of no work, which has no logarithm
BANDS_PER_E = 20  # bands for a factor of e: groups whose work differs by less than 5 % are in one band


def errors(predicted: Floats, measured: Floats) -> Floats:
    """Relative errors |predicted / measured - 1|, of the shape of both."""
    return np.abs(predicted / measured - 1)


def bands(work: Floats) -> Ints:
    """The band (N,) of each group; groups of one band have equal work, within 5 %."""
    return np.floor(np.log(np.maximum(work, TINY)) * BANDS_PER_E).astype(np.int64)


def held_out(predicted: Floats, measured: Floats) -> HeldOut:
    """The scores of predictions (N, 2) of seconds forward and backward."""
    off, parts = errors(predicted.sum(axis=1), measured.sum(axis=1)), errors(predicted, measured)
    return HeldOut(
        samples=len(off), median=float(np.median(off)), mean=float(off.mean()),
        forward_median=float(np.median(parts[:, 0])), backward_median=float(np.median(parts[:, 1])),
        tau=kendall_tau(predicted.sum(axis=1), measured.sum(axis=1)),
    )  # fmt: skip
