"""The cheapest split of a table's columns into any widths, by dynamic programming.

The options of a problem hold a sample of all splits; bounds must hold for every split, so they ask here.

Legend: m modes of one dim, n = dim / 4 width steps; cost[:, j] is of a piece of (j + 1) * 4 columns.
"""

import numpy as np

from recsmith._types import Floats


def cheapest_partition(cost: Floats, extra: Floats) -> tuple[Floats, Floats]:
    """(least total cost, its extra) (m,) of covering n steps with pieces of these costs (m, n); inf is forbidden.

    extra (m, n) is summed along the chosen split, to know what it weighs. Cost: n steps over an (m, n) array.
    """
    modes, steps = cost.shape
    best = np.full((modes, steps + 1), np.inf)
    best[:, 0] = 0.0
    along = np.zeros((modes, steps + 1))
    everyone = np.arange(modes, dtype=np.int64)
    for filled in range(1, steps + 1):
        totals = cost[:, :filled] + best[:, filled - 1 :: -1][:, :filled]  # last piece of 1 .. filled steps
        pick = totals.argmin(axis=1)
        best[:, filled] = totals[everyone, pick]
        along[:, filled] = extra[everyone, pick] + along[everyone, filled - 1 - pick]
    return best[:, steps], along[:, steps]
