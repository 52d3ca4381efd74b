"""A problem's whole space as a model of integers for CP-SAT of OR-Tools.

Variables: which layout each table takes, and which slots hold its columns (cp_sat_variables.py). Constraints: a legal
plan within memory (cp_sat_placement.py). Objective: the time of the step (cp_sat_objective.py).
"""

import numpy as np

from recsmith._types import Bools
from recsmith.costs import Evaluator
from recsmith.planners.solver.cp_sat_objective import ROUNDING, TICKS, StepObjective
from recsmith.planners.solver.cp_sat_placement import RankOrder, add_placement, add_rank_order, rank_order
from recsmith.planners.solver.cp_sat_variables import PlanVariables
from recsmith.planners.solver.fixed_tables import FixedTables
from recsmith.planners.solver.layouts import Shares
from recsmith.planners.solver.linear_pieces import LinearPieces


class SpaceModel:
    """The plans of a space: those of at most total_s and at least bound_s seconds, the least first; or any for None.

    fixed: tables whose placement is given; shares then hold the other tables only. tick_s: seconds of the objective's
    unit, 0 without an objective. order: which of several equal plans the model has; None where it has all of them.
    """

    def __init__(
        self, evaluator: Evaluator, shares: Shares, linear_pieces: LinearPieces, total_s: float | None = None,
        bound_s: float = 0.0, fixed: FixedTables | None = None,
    ) -> None:  # fmt: skip
        fixed = fixed or FixedTables.nothing(evaluator)
        shares = shares.take(_allowed(shares, fixed))
        shares = shares if total_s is None else shares.take(_short_enough(evaluator, shares, total_s))
        self.problem, self.shares = evaluator.problem, shares
        self.tick_s = 0.0 if total_s is None else total_s / TICKS
        self.order: RankOrder | None = None
        self.variables = PlanVariables(evaluator.problem, shares)
        self.model = self.variables.model
        add_placement(self.variables, fixed)
        if total_s is None:
            return
        if not fixed.tables.any():
            self.order = rank_order(evaluator, self.variables)
            add_rank_order(self.variables, self.order)
        StepObjective(evaluator, self.variables, linear_pieces, fixed, self.tick_s).minimise(bound_s)


def _allowed(shares: Shares, fixed: FixedTables) -> Bools:
    """Which shares (S,) may be beside the fixed tables."""
    return np.array([fixed.allows(layout.shared_width) for layout in shares.layouts], dtype=bool)[shares.layout]


def _short_enough(evaluator: Evaluator, shares: Shares, total_s: float) -> Bools:
    """Which shares (S,) may be in a plan of at most total_s: alone they take no longer."""
    alone = evaluator.loads(shares.terms).sum(axis=0) + evaluator.shared.sum(axis=1)[shares.group]
    return alone <= total_s * (1 + ROUNDING)
