"""The variables of a model for CP-SAT: which layout each table takes, and which slots hold its columns.

A *slot* is a share (layouts.py) on one of the targets where its layout may have it. A model has one variable of 0 or 1
for each layout (chosen or not) and for each slot (filled or not). Where a layout has a single target, only the share
with all columns can be there, and the slot's variable is the layout's own.

Legend: L layouts, S shares, N slots, W ranks.
"""

from typing import Any, cast

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Bools, Ints
from recsmith.planners.solver.layouts import Shares
from recsmith.problems import Problem
from recsmith.sharding.coverage import covers

Sum = list[tuple[cp_model.IntVar, int]]  # variables times weights


class PlanVariables:
    """The variables of the plans that some shares allow, and linear constraints on sums of them.

    Per layout (L,): chosen (the variable), layout_table, layout_dim. Per slot (N,): filled (the variable), share,
    target, layout, table, columns and coverage. covers (W, N): whether a slot's pieces cover a rank. one: a variable
    that is always 1.
    """

    def __init__(self, problem: Problem, shares: Shares) -> None:
        self.problem, self.shares, layouts = problem, shares, shares.layouts
        self.model = cp_model.CpModel()
        self.one = self.model.new_constant(1)
        self.layout_table = np.array([layout.table for layout in layouts], dtype=np.int64)
        self.layout_dim: Ints = problem.demand.dim[self.layout_table]
        self.chosen = [self.model.new_bool_var("") for _ in layouts]
        self.share, self.target = self._slots()
        self.layout: Ints = shares.layout[self.share]
        self.table: Ints = self.layout_table[self.layout]
        self.columns: Ints = shares.columns[self.share]
        self.coverage: Ints = shares.coverage[self.share]
        self.covers: Bools = covers(self.target, self.coverage, np.arange(len(problem.capacity))[:, None])
        numbers: list[int] = self.layout.tolist()
        self.filled = [
            self.model.new_bool_var("") if len(layouts[number].targets) > 1 else self.chosen[number]
            for number in numbers
        ]

    def _slots(self) -> tuple[Ints, Ints]:
        """(share, target) of every slot (N,)."""
        whole = self.shares.columns == self.layout_dim[self.shares.layout]
        numbers: list[int] = self.shares.layout.tolist()
        targets = [self.shares.layouts[number].targets for number in numbers]
        slots = [(s, t) for s, on in enumerate(targets) if len(on) > 1 or whole[s] for t in on]
        share, target = np.array(slots, dtype=np.int64).reshape(-1, 2).T
        return share, target

    def weighted(self, slots: Bools, weights: Ints | None = None) -> Sum:
        """Some slots (N,), each times its weight (N,) or 1."""
        selected = np.flatnonzero(slots)
        weight = np.ones_like(selected) if weights is None else weights[selected]
        return [(self.filled[slot], w) for slot, w in zip(selected.tolist(), weight.tolist(), strict=True)]

    def constant(self, value: int) -> Sum:
        """A sum that is always this value."""
        return [(self.one, int(value))] if value else []

    def any_chosen(self, layouts: Bools) -> cp_model.IntVar:
        """A variable that is 1 where any table takes one of these layouts (L,)."""
        any_ = self.model.new_bool_var("")
        for table in np.unique(self.layout_table[layouts]).tolist():
            own = np.flatnonzero(layouts & (self.layout_table == table)).tolist()
            self.limit([*((self.chosen[i], 1) for i in own), (any_, -1)], 0)
        return any_

    def limit(self, weighted: Sum, at_most: int, at_least: int = cp_model.INT_MIN) -> None:
        """Constrain a sum."""
        self.model.add_linear_constraint(total(weighted), at_least, at_most)


def total(weighted: Sum) -> cp_model.LinearExpr:
    """A sum as OR-Tools takes it."""
    expressions = cast(Any, cp_model.LinearExpr)  # its stubs leave types out
    return expressions.weighted_sum([variable for variable, _ in weighted], [weight for _, weight in weighted])
