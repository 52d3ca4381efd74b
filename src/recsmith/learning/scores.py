"""How good predictions are. Legend: N predictions."""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural.files import HeldOut
from recsmith.measuring.rank_correlation import kendall_tau

BANDS_PER_E = 20  # groups whose work differs by less than 5 % count as equal


def errors(predicted: Floats, measured: Floats) -> Floats:
    """|predicted / measured - 1|."""
    return np.abs(predicted / measured - 1)


def bands(work: Floats) -> Ints:
    """Numbers (N,) that groups of equal total work share: within 5 %."""
    return np.floor(np.log(np.maximum(work, 1e-300)) * BANDS_PER_E).astype(np.int64)


def held_out(predicted: Floats, measured: Floats) -> HeldOut:
    """The scores of predictions (N, 2) of seconds forward and backward."""
    off, parts = errors(predicted.sum(axis=1), measured.sum(axis=1)), errors(predicted, measured)
    return HeldOut(
        samples=len(off), median=float(np.median(off)), mean=float(off.mean()),
        forward_median=float(np.median(parts[:, 0])), backward_median=float(np.median(parts[:, 1])),
        tau=kendall_tau(predicted.sum(axis=1), measured.sum(axis=1)),
    )  # fmt: skip
