"""How far two rankings agree: Kendall's tau. Legend: N things that are ranked."""

import numpy as np

from recsmith._types import Floats, Ints

ROWS_AT_ONCE = 1000  # of the (N, N) comparisons: an array of them then takes 8 kB * N, 96 MB for N = 12,000


def kendall_tau(first: Floats, second: Floats, band: Ints | None = None) -> float:
    """Kendall's tau-b of two rankings (N,), over all pairs, or those within a band; nan without any.

    Kendall, Rank Correlation Methods (1948): (agreeing - disagreeing) over the root of (pairs not tied in the first)
    times (pairs not tied in the second).
    """
    agree, untied = 0.0, np.zeros(2)
    for start in range(0, len(first), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        one, two = np.sign(first[rows, None] - first), np.sign(second[rows, None] - second)
        if band is not None:
            same = band[rows, None] == band
            one, two = one * same, two * same
        agree += float((one * two).sum())
        untied += [float(np.abs(one).sum()), float(np.abs(two).sum())]
    scale = float(np.sqrt(untied.prod()))
    return agree / scale if scale else float("nan")
