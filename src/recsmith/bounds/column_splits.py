"""The cheapest split of a table's columns into pieces of any widths, by dynamic programming.

The options of a problem hold a sample of all splits; bounds must hold for every split, so they ask here.

Recurrence: the cheapest cover of s width steps is one piece, or the cheapest covers of i and of s - i steps side by
side, with i at most s / 2; where the bytes of the split are asked for as well, it is a last piece of w steps beside the
cheapest cover of s - w. It takes n additions of arrays of up to n steps, so very wide tables get a bound below it
instead, which takes n divisions: a cover costs no less than n times the least cost of a step, that is of a piece over
its steps.

Legend: ... modes of one dim (and nodes side by side), n = dim / 4 width steps; cost[..., j] is of a piece of
(j + 1) * 4 columns, and inf where no such piece is allowed.
"""

import numpy as np

from recsmith._types import Floats

MOST_STEPS = 1024  # of 4 columns: wider tables get the bound of n divisions, which is seldom far below


def least_cost(cost: Floats) -> Floats:
    """Least total cost (...) of covering n width steps with pieces of these costs (..., n); inf where none can.

    Beyond MOST_STEPS it is a bound below that cost.
    """
    steps = cost.shape[-1]
    if steps > MOST_STEPS:
        return steps * _cost_of_a_step(cost).min(axis=-1)
    best = np.empty((steps + 1, cost.size // steps))  # steps first: the least of many rows is taken side by side
    best[0], best[1:] = 0.0, cost.reshape(-1, steps).T
    for filled in range(2, steps + 1):
        half = filled // 2
        pairs = best[1 : half + 1] + best[filled - 1 : filled - half - 1 : -1]
        np.minimum(best[filled], np.minimum.reduce(pairs, axis=0), out=best[filled])
    return best[steps].reshape(cost.shape[:-1])


def least_cost_and_bytes(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(least total cost, the bytes of the split that has it), both (m,), of pieces with costs and bytes (m, n).

    Of splits that cost the same, the one whose last piece is narrowest counts.
    """
    modes, steps = cost.shape
    if steps > MOST_STEPS:
        return _least_of_steps(cost, size)
    best, weight = np.zeros((modes, steps + 1)), np.zeros((modes, steps + 1))
    every_mode = np.arange(modes, dtype=np.int64)
    for filled in range(1, steps + 1):
        totals = _totals(cost, best, filled)
        last = totals.argmin(axis=1)
        best[:, filled] = totals[every_mode, last]
        weight[:, filled] = size[every_mode, last] + weight[every_mode, filled - 1 - last]
    return best[:, steps], weight[:, steps]


def _least_of_steps(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """The bound of n divisions (m,), and the bytes that as many steps of its piece have."""
    steps = cost.shape[1]
    share = _cost_of_a_step(cost)
    piece = share.argmin(axis=1)
    every_mode = np.arange(len(cost), dtype=np.int64)
    return steps * share[every_mode, piece], steps * size[every_mode, piece] / (1 + piece)


def _cost_of_a_step(cost: Floats) -> Floats:
    """Cost (..., n) of pieces over the steps that they have."""
    return cost / np.arange(1.0, cost.shape[-1] + 1)


def _totals(cost: Floats, best: Floats, filled: int) -> Floats:
    """Cost (..., filled) of covering `filled` steps with a last piece of 1 .. filled steps."""
    return cost[..., :filled] + best[..., filled - 1 :: -1][..., :filled]
