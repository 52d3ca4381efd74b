"""A problem's whole space as an integer model for CP-SAT of OR-Tools, and its objective: the time of the step.

cp_sat_variables.py defines which plans the model holds. Time counts in whole ticks, phase by phase: a tick is 2^-30 of
the best plan known. Seconds are always rounded down to ticks, so a bound of the integers is a bound of the seconds. In
each phase, a rank takes the largest of its linear pieces, group by group, and each group in use adds its opening; a
phase ends with its slowest rank. Two kinds of constraint lose no best plan and shorten the proof. First, a group that
is closed on a rank carries nothing there, and an open one no more than a plan may take (`_group_load`). Second, the
pieces of a table end in time on average (`_add_means`).

Legend: T tables, L layouts, S shares, N slots, W ranks, G fusion groups, F phases, J linear pieces of a phase.
"""

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, phase_seconds
from recsmith.planners.solver import cp_sat_variables as plans
from recsmith.planners.solver.cp_sat_variables import PlanVariables, Sum
from recsmith.planners.solver.layouts import Shares
from recsmith.planners.solver.linear_pieces import LinearPieces
from recsmith.planners.solver.placed_tables import FixedTables
from recsmith.sharding.coverage import first_rank, last_rank

TICKS = 2**30  # ticks in the best plan known: rounding loses one tick for each piece of a rank, so gaps of about 1e-8
ROUNDING = 1e-12  # relative, above rounding errors of sums (about 1e-15 a term): subtracted before rounding down


class SpaceModel:
    """The plans of a space with at most total_s and at least bound_s seconds, minimised; all plans if total_s is None.

    fixed: tables whose placement is given; shares then hold the other tables only. tick_s: seconds of the objective's
    unit, 0 without an objective. order: which of several equal plans the model has; None if it has all of them.
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
        self.order: plans.RankOrder | None = None
        self.variables = PlanVariables(evaluator.problem, shares)
        self.model = self.variables.model
        plans.add_placement(self.variables, fixed)
        if total_s is None:
            return
        if not fixed.tables.any():
            self.order = plans.rank_order(evaluator, self.variables)
            plans.add_rank_order(self.variables, self.order)
        StepObjective(evaluator, self.variables, linear_pieces, fixed, self.tick_s).minimise(bound_s)


def _allowed(shares: Shares, fixed: FixedTables) -> Bools:
    """Which shares (S,) may be combined with the fixed tables."""
    return np.array([fixed.allows(layout.shared_width) for layout in shares.layouts], dtype=bool)[shares.layout]


def _short_enough(evaluator: Evaluator, shares: Shares, total_s: float) -> Bools:
    """Which shares (S,) may be in a plan of at most total_s: those that alone take no longer."""
    alone = evaluator.loads(shares.terms).sum(axis=0) + evaluator.shared.sum(axis=1)[shares.group]
    return alone <= total_s * (1 + ROUNDING)


# --- the objective ----------------------------------------------------------------------------------------------------


class StepObjective:
    """The time of the step as a sum of integer variables, one for the end of each phase.

    group (N,): fusion group of each slot. used: for each possible group, a variable that is 1 if a table is in it.
    tick_s: seconds of a tick.
    """

    def __init__(
        self, evaluator: Evaluator, variables: PlanVariables, linear_pieces: LinearPieces, fixed: FixedTables,
        tick_s: float,
    ) -> None:  # fmt: skip
        self.evaluator, self.variables, self.model = evaluator, variables, variables.model
        self.linear_pieces, self.fixed, self.tick_s = linear_pieces, fixed, tick_s
        self.world = evaluator.problem.cluster.world_size
        of_layout = np.array([layout.group for layout in variables.shares.layouts], dtype=np.int64)  # (L,)
        self.group: Ints = of_layout[variables.layout]
        groups: list[int] = np.union1d(self.group, np.flatnonzero(fixed.groups)).tolist()
        self.used = {
            group: variables.one if fixed.groups[group] else variables.any_chosen(of_layout == group)
            for group in groups
        }

    def minimise(self, bound_s: float) -> None:
        """Minimise the sum of the phases, which is at most the best plan known and at least bound_s."""
        shared = self.ticks(phase_seconds(self.evaluator, self.evaluator.shared))  # (F, G)
        phases = [self.model.new_int_var(0, TICKS, "") for _ in self.linear_pieces.slopes]
        for phase, end in enumerate(phases):
            collectives: Sum = [(used, int(shared[phase, group])) for group, used in self.used.items()]
            loads, everywhere = self._rank_loads(phase)
            for load in loads:
                self.variables.limit([*load, *collectives, (end, -1)], 0)
            self._add_means(phase, [*everywhere, *collectives, (end, -1)])
        ends: Sum = [(end, 1) for end in phases]
        self.variables.limit(ends, TICKS, at_least=int(self.ticks(np.array(bound_s))))
        self.model.minimize(plans.total(ends))

    def ticks(self, seconds: Floats) -> Ints:
        """Seconds in ticks, rounded down."""
        return np.floor(seconds / self.tick_s * (1 - ROUNDING)).astype(np.int64)

    def _rank_loads(self, phase: int) -> tuple[list[Sum], Sum]:
        """(the load of each rank (W,), the part of it that is the same on all ranks)."""
        loads: list[Sum] = [[] for _ in range(self.world)]
        everywhere: Sum = []
        shares = self.variables.shares
        costs = self.ticks(self.linear_pieces.slopes[phase] @ shares.terms.T)[:, self.variables.share]  # (J, N)
        for group in self.used:
            size = int(self.evaluator.problem.modes.coverage[self.evaluator.group == group].min())
            for block in range(self.world // size):  # blocks of ranks that hold the same of this group
                first, last = first_rank(block, size), last_rank(block, size)
                slots = (self.group == group) & self.variables.covers[first]
                load = self._group_load(group, phase, costs, slots, first, size)
                for rank in range(first, last + 1):
                    loads[rank] += load
                if size == self.world:
                    everywhere += load
        return loads, everywhere

    def _group_load(self, group: int, phase: int, costs: Ints, slots: Bools, first: int, size: int) -> Sum:
        """Time of a group on a block of ranks: its largest linear piece, and its opening if the group is open there."""
        variables, sums = self.variables, self.fixed.sums[group, first]
        base = self.ticks(self.linear_pieces.slopes[phase] @ sums)  # (J,), of the fixed tables
        opening = int(self.ticks(self.linear_pieces.opening)[phase])
        always_open = bool(self.fixed.pieces[group, first])
        if not slots.any():
            return [(variables.one, int(base.max()) + opening * always_open)] if always_open else []
        lines = [
            [*variables.weighted(slots, cost), *variables.constant(already)]
            for cost, already in _largest(costs, base, slots)
        ]
        load = lines[0]
        if len(lines) > 1 or size > 1:
            longest = self.model.new_int_var(0, TICKS, "")
            load = [(longest, 1)]
            for line in lines:
                variables.limit([*line, (longest, -1)], 0)
        if not opening or always_open:
            return [*load, *variables.constant(opening * always_open)]
        is_open = self._is_open(group, slots)
        for line in lines:
            variables.limit([*line, (is_open, opening - TICKS)], 0)
        return [*load, (is_open, opening)]

    def _is_open(self, group: int, slots: Bools) -> cp_model.IntVar:
        """Whether a group fills any of its slots (N,) on a rank; for groups that span the world, whether it is used."""
        variables = self.variables
        if (variables.coverage[slots] == self.world).all():
            return self.used[group]
        is_open = self.model.new_bool_var("")
        self.model.add_implication(is_open, self.used[group])
        for table in np.unique(variables.table[slots]).tolist():
            variables.limit([*variables.weighted(slots & (variables.table == table)), (is_open, -1)], 0)
        return is_open

    def _add_means(self, phase: int, others: Sum) -> None:
        """No piece, added to what every rank carries, outlasts the phase; so neither does the mean of a table's pieces.

        The mean is weighted by columns; pieces that span the world are part of what every rank carries.
        """
        variables, shares = self.variables, self.variables.shares
        alone = self.linear_pieces.loads(shares.terms)[phase] * shares.columns / variables.layout_dim[shares.layout]
        cost = self.ticks(alone)[variables.share]
        local = variables.coverage < self.world
        for table in np.unique(variables.table[local]).tolist():
            variables.limit([*variables.weighted(local & (variables.table == table), cost), *others], 0)


def _largest(costs: Ints, base: Ints, slots: Bools) -> list[tuple[Ints, int]]:
    """Linear pieces, as costs (J, N) and a base (J,), without those that are never the largest on these slots."""
    left: list[tuple[Ints, int]] = list(zip(costs, base.tolist(), strict=True))
    for row in list(left):
        if any(other is not row and row[1] <= other[1] and (row[0][slots] <= other[0][slots]).all() for other in left):
            left = [other for other in left if other is not row]
    return left
