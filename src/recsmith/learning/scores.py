"""How good predictions are. Legend: N predictions."""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.neural_files import HeldOut

BANDS_PER_E = 20  # groups whose work differs by less than 5 % count as equal
PAIRS_AT_ONCE = 1000


def errors(predicted: Floats, measured: Floats) -> Floats:
    """|predicted / measured - 1|."""
    return np.abs(predicted / measured - 1)


def kendall_tau(first: Floats, second: Floats, band: Ints | None = None) -> float:
    """Kendall's tau-b of two rankings (N,), over all pairs, or those within a band; nan without any.

    Kendall, Rank Correlation Methods (1948): (agreeing - disagreeing) over the root of (pairs not tied in the first)
    times (pairs not tied in the second).
    """
    agree, untied = 0.0, np.zeros(2)
    for start in range(0, len(first), PAIRS_AT_ONCE):
        rows = slice(start, start + PAIRS_AT_ONCE)
        one, two = np.sign(first[rows, None] - first), np.sign(second[rows, None] - second)
        if band is not None:
            same = band[rows, None] == band
            one, two = one * same, two * same
        agree += float((one * two).sum())
        untied += [float(np.abs(one).sum()), float(np.abs(two).sum())]
    scale = float(np.sqrt(untied.prod()))
    return agree / scale if scale else float("nan")


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
