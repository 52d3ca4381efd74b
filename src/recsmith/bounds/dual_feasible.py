"""Dual feasible functions: prices of pieces above the seconds that they take, because few of them fit on a rank.

A function f of shares 0 <= x <= 1 of a rank is dual feasible if, for shares that add up to at most 1, their values do
too. So pieces may be priced by f of the share of the rank that they take, and the prices on a rank still add up to at
most one rank. Functions that ignore small shares, or count in steps, charge for shares that cannot be combined: three
pieces of slightly more than a third cost one and a half ranks. Known from bin packing (Fekete and Schepers, 2001;
Lueker, 1983; Clautiaux, Alves and Valerio de Carvalho, 2010, survey them).

Shares are slightly reduced, so that rounding cannot lift a bound: the shares on a rank then add up to less than 1 by
far more than rounding errors.

Legend: D functions, N pieces, K nodes side by side.
"""

import numpy as np

from recsmith._types import Floats

CUTOFF, STEPS, COUNT = 0.0, 1.0, 2.0  # kinds of functions
FUNCTIONS: Floats = np.array(
    [(CUTOFF, each) for each in (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.49)]
    + [(STEPS, each) for each in (0.22, 0.28, 0.36, 0.42, 0.46)]
    + [(COUNT, each) for each in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)]
)
"""(kind, parameter) of each function (D, 2).

CUTOFF e: nothing for shares below e, the whole rank for those above 1 - e, and else the share. STEPS e: how often e
goes into the share, over how often into 1; above a half 1 less that of what is left. COUNT k: how often 1 / (k + 1)
goes into the share, over k.
"""
SHRUNK = 1 - 1e-9  # factor on shares
MOST_SHARE = 2.0  # larger shares are set to this: such pieces fit no rank


def dual_feasible(function: Floats, share: Floats) -> Floats:
    """Values (...) of one function, a row of FUNCTIONS, at shares (...)."""
    kind, parameter = float(function[0]), float(function[1])
    if kind == CUTOFF:
        return np.where(share > 1 - parameter, 1.0, np.where(share < parameter, 0.0, share))
    if kind == COUNT:
        return np.asarray(np.trunc(share * (parameter + 1)) / parameter)
    times = np.trunc(1 / parameter)
    beside: Floats = 1 - np.trunc((1 - share) / parameter) / times
    return np.where(share > 0.5, beside, np.trunc(share / parameter) / times)
