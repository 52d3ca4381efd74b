# pyright: basic
"""Prices of shares by a linear programme: the best that the known fillings and ways allow (needs OR-Tools).

Every table costs at most what each of its known ways does, and no known filling of a rank is worth more than one rank;
under these limits, the cost of the tables minus that of all ranks is maximized. Missing ways and fillings are found by
pricing (filling_grid.py), so this is column generation, seen from its dual. Prices stay in a box around the best known
ones, because distant prices are seldom better.

Legend: n shares, C different tables.
"""

from collections.abc import Sequence

import numpy as np
from ortools.linear_solver import pywraplp

from recsmith._types import Bools, Floats
from recsmith.bounds.rank_shares import Items, RankShares, TableWay

SCALE = 1e3  # seconds count in milliseconds, because the solver's tolerances are absolute


class FillingPrices:
    """The linear programme of plans that use some groups; it learns ways and fillings, and which of them fit."""

    def __init__(self, shares: RankShares, world: int, usable: Bools) -> None:
        """world: number of ranks. usable (n,): shares that such plans may have."""
        self.solver = solver = pywraplp.Solver.CreateSolver("GLOP")
        self.infinity = infinity = solver.infinity()
        self.price = {share: solver.NumVar(0, 0, "") for share in np.flatnonzero(usable).tolist()}
        self.table = [solver.NumVar(-infinity, infinity, "") for _ in shares.copies]
        self.rank = solver.NumVar(0, infinity, "")
        goal = solver.Objective()
        goal.SetMaximization()
        goal.SetCoefficient(self.rank, -float(world))
        for variable, count in zip(self.table, shares.copies.tolist(), strict=True):
            goal.SetCoefficient(variable, float(count))
        self.size = shares.size
        self._ways: list[tuple[pywraplp.Constraint, TableWay]] = []
        self._fillings: list[tuple[pywraplp.Constraint, Items]] = []
        self._known: set[TableWay | Items] = set()
        for share in self.price:
            self.add_filling(((share, 1),))

    def add_way(self, way: TableWay) -> None:
        """Add a way, unless it is known or has a share that is not usable."""
        if way in self._known or not all(share in self.price for share, _ in way.shares):
            return
        self._known.add(way)
        row = self.solver.Constraint(-self.infinity, way.seconds * SCALE)
        row.SetCoefficient(self.table[way.table], 1.0)
        for share, count in way.shares:
            row.SetCoefficient(self.price[share], -float(count * self.size[share]))
        self._ways.append((row, way))

    def add_filling(self, filling: Items) -> None:
        """Add a filling of a rank, unless it is known or has a share that is not usable."""
        if not filling or filling in self._known or not all(share in self.price for share, _ in filling):
            return
        self._known.add(filling)
        row = self.solver.Constraint(-self.infinity, 0.0)
        for share, count in filling:
            row.SetCoefficient(self.price[share], float(count))
        row.SetCoefficient(self.rank, -1.0)
        self._fillings.append((row, filling))

    def fit(self, fits: Bools, fitting: Sequence[bool]) -> bool:
        """Set which shares (n,) and `fillings` have time on a rank; returns False if a table has no way left."""
        has_way = np.zeros(len(self.table), dtype=bool)
        for row, way in self._ways:
            open_ = all(fits[share] for share, _ in way.shares)
            row.SetUb(way.seconds * SCALE if open_ else self.infinity)
            has_way[way.table] |= open_
        for (row, _), open_ in zip(self._fillings, fitting, strict=True):
            row.SetUb(0.0 if open_ else self.infinity)
        return bool(has_way.all())

    @property
    def fillings(self) -> list[Items]:
        """All known fillings."""
        return [filling for _, filling in self._fillings]

    def solve(self, low: Floats, high: Floats, fits: Bools) -> tuple[float, Floats] | None:
        """(most seconds of tables beyond all ranks, prices (n,)) in a box; None if the solver fails."""
        for share, variable in self.price.items():
            variable.SetBounds(*((low[share] * SCALE, high[share] * SCALE) if fits[share] else (0.0, 0.0)))
        if self.solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        found = low.copy()
        for share, variable in self.price.items():
            found[share] = max(variable.solution_value() / SCALE, 0.0)
        return self.solver.Objective().Value() / SCALE, found
