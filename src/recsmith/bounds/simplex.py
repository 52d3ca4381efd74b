"""A small linear programme, solved by the simplex method with array operations that give the same bits everywhere.

Only for prices: users of its duals prove by other means what these are worth (rank_fillings.py). So it may end early,
and its rounding errors change no proof.

Legend: m rows, n columns.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.elementary import matmul

SMALL = 1e-9  # what counts as zero, for numbers of about 1
OWN = -1  # in place of a column's index: the column that a row begins with
ZERO_PIVOT = 1e-7  # smaller numbers are not used as divisors


class Simplex:
    """The least cost @ x with rows @ x = right, x >= 0, started with one own column in each row.

    rows (m, n), cost (n,). pivots: made so far. Own columns stay in the solution if their `own_cost` is 0, as those of
    inequalities do, and leave it if that is high.
    """

    def __init__(self, right: Floats, own_cost: Floats) -> None:
        """Both (m,). right: 0 or more. own_cost: of the column that each row begins with."""
        self.inverse: Floats = np.eye(len(right))
        self.values = right.copy()
        self.own_cost, self.duals = own_cost, own_cost.copy()  # cost of the basis @ inverse
        self.basis: Ints = np.full(len(right), OWN)
        self.pivots = 0

    def solve(self, rows: Floats, cost: Floats, most: int) -> bool:
        """Pivot at most `most` times, until no column improves the cost; returns whether it came to an end."""
        for _ in range(most):
            reduced = cost - matmul(self.duals, rows)
            own = self.own_cost - self.duals
            best, best_own = int(reduced.argmin()), int(own.argmin())
            if min(reduced[best], own[best_own]) > -SMALL:
                return True
            if own[best_own] < reduced[best]:
                column, worth = self.inverse[:, best_own], own[best_own]
            else:
                column, worth = matmul(self.inverse, rows[:, best]), reduced[best]
            if not self._pivot(best if worth == reduced[best] else OWN, column, float(worth)):
                return True
        return False

    def _pivot(self, number: int, column: Floats, worth: float) -> bool:
        """Bring a column (m,), in terms of the basis, into the basis; False if nothing limits it."""
        limits: Bools = column > ZERO_PIVOT
        if not limits.any():
            return False
        ratio = np.divide(self.values, column, where=limits, out=np.full(len(column), np.inf))
        row = int(ratio.argmin())
        pivot = self.inverse[row] / column[row]
        step = ratio[row]
        self.values = np.maximum(self.values - column * step, 0.0)
        self.values[row] = step
        column = column.copy()
        column[row] = 0.0
        self.inverse = self.inverse - column[:, None] * pivot
        self.inverse[row] = pivot
        self.duals = self.duals + worth * pivot
        self.basis[row] = number
        self.pivots += 1
        return True
