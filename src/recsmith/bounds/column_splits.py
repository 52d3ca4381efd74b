"""The cheapest split of a table's columns into pieces of any widths, by dynamic programming.

The options of a problem hold a sample of all splits; bounds must hold for every split, so they ask here.

Recurrence: the cheapest cover of the first s width steps ends with some piece of w steps, beside the cheapest cover of
the first s - w. It takes n additions of arrays of up to n steps.

Legend: ... modes of one dim (and nodes side by side), n = dim / 4 width steps; cost[..., j] is of a piece of
(j + 1) * 4 columns, and inf where no such piece is allowed.
"""

import numpy as np

from recsmith._types import Floats


def least_cost(cost: Floats) -> Floats:
    """Least total cost (...) of covering n width steps with pieces of these costs (..., n); inf where none can."""
    steps = cost.shape[-1]
    best = np.zeros((*cost.shape[:-1], steps + 1))
    for filled in range(1, steps + 1):
        np.min(_totals(cost, best, filled), axis=-1, out=best[..., filled])
    return best[..., steps]


def least_cost_and_bytes(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(least total cost, the bytes of the split that has it), both (m,), of pieces with costs and bytes (m, n).

    Of splits that cost the same, the one whose last piece is narrowest counts.
    """
    modes, steps = cost.shape
    best, weight = np.zeros((modes, steps + 1)), np.zeros((modes, steps + 1))
    every_mode = np.arange(modes, dtype=np.int64)
    for filled in range(1, steps + 1):
        totals = _totals(cost, best, filled)
        last = totals.argmin(axis=1)
        best[:, filled] = totals[every_mode, last]
        weight[:, filled] = size[every_mode, last] + weight[every_mode, filled - 1 - last]
    return best[:, steps], weight[:, steps]


def _totals(cost: Floats, best: Floats, filled: int) -> Floats:
    """Cost (..., filled) of covering `filled` steps with a last piece of 1 .. filled steps."""
    return cost[..., :filled] + best[..., filled - 1 :: -1][..., :filled]
