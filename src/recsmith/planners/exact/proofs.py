"""Work on a plan until it is proven best, counted in units that are the same on every machine."""

import math
import sys
import time
from itertools import count
from typing import Any

from recsmith.bounds import lower_bound
from recsmith.bounds.lower_bound import prove
from recsmith.errors import Infeasible
from recsmith.planners.protocol import Search
from recsmith.planners.solver.enumeration import Arrangements, Enumeration
from recsmith.planners.solver.layouts import Shares
from recsmith.planners.solver.linear_pieces import LinearPieces
from recsmith.plans import Bound
from recsmith.problems import Footprint, Problem

UNITS = 63  # of work where no budget says how much, about a second each: three rounds of turns
FIRST_UNITS = 20  # to find any plan at all, where there is none to start from
NODES = 500  # of an enumeration in a unit
TURNS: tuple[dict[str, Any], ...] = (
    {"linearization_level": 2},
    {"interleave_search": True},  # all strategies of CP-SAT by turns, neighbourhoods of the best plan among them
    {"linearization_level": 2, "optimize_with_lb_tree_search": True},
)
PARTS, PART = 50, 0.2  # of the proof between the first two rounds: how many, and their units of work
GROWTH = 4.0  # of turns, round by round
CLOSE = 1e-7  # relative gap that counts as none: rounded seconds prove no smaller one


class Proof:
    """Improves the plan of a search, and what is known of all plans: none takes less than bound_s."""

    how: str

    def __init__(self, search: Search) -> None:
        self.search, self.evaluator = search, search.evaluator
        self.bound_s = lower_bound(self.evaluator).bound.value_s or 0.0
        self.spent, self.proven = 0.0, False

    def work(self) -> None:
        """Until the plan is proven, or the budget spent. Infeasible where it is proved that there is no plan."""
        raise NotImplementedError

    @property
    def bound(self) -> Bound | None:
        """The bound, where it is better than the cost model's own."""
        known = lower_bound(self.evaluator).bound
        if known.value_s is not None and self.bound_s <= known.value_s:
            return None
        return Bound(value_s=min(self.bound_s, self.search.total_s), kind=f"exact: {self.how}", space=known.space)

    @property
    def left(self) -> float:
        """Units of work that the budget leaves; the first plan is due whatever it is."""
        budget = self.search.budget
        if self.search.best is None:
            return FIRST_UNITS - self.spent
        if budget.iterations is not None:
            return budget.iterations - 1 - self.spent
        return UNITS - self.spent if budget.time_limit_s is None else math.inf

    @property
    def ends(self) -> bool:
        """Whether the plan is proven, or the budget spent."""
        total_s = self.search.total_s
        proven = self.proven or total_s == 0 or total_s <= self.bound_s * (1 + CLOSE)
        return proven or self.left <= 0 or (self.search.best is not None and self.search.stop)

    def hear(self, footprint: Footprint) -> bool:
        """Keep a plan if it is the best; whether the search is cancelled."""
        self.search.try_(footprint)
        self.search.iterations -= 1  # units count, not plans
        return self.search.cancelled

    def learn(self, bound_s: float, units: float) -> None:
        """Note what so much work has proven."""
        self.bound_s = max(self.bound_s, bound_s)
        self.spent += units
        self.search.iterations = min(1 + math.ceil(self.spent), self.search.budget.iterations or sys.maxsize)


class BySolver(Proof):
    """CP-SAT's proof. Three ways to search take turns of 1, 1, 1, 4, 4, 4, 16 ... units, from the best plan and bound.

    One does a bit of both, one improves plans most, one lifts the bound most.
    """

    how = "CP-SAT, and branching over the slowest rank, over the whole space"

    def __init__(self, search: Search, shares: Shares, faces: LinearPieces) -> None:
        super().__init__(search)
        self.shares, self.faces = shares, faces

    def work(self) -> None:
        """Turns until the plan is proven."""
        if self.search.best is None:
            self._find()
        for turn in count():
            if turn == len(TURNS):
                self._lift()
            if self.search.best is None or self.ends:
                return
            self._turn(self.search.best, TURNS[turn % len(TURNS)], min(GROWTH ** (turn // len(TURNS)), self.left))

    def _lift(self) -> None:
        """A bound by branching over how high the slowest rank stands: on many devices better than the solver's."""
        if self.search.best is None or self.ends:
            return
        parts, search = iter(range(PARTS)), self.search
        bound = prove(self.evaluator, search.total_s, lambda: not search.stop and next(parts, None) is not None)
        self.learn(bound.value_s or 0.0, (PARTS - len(list(parts))) * PART)

    def _find(self) -> None:
        """Any plan; that there is none is believed if the solver says so with and without its presolve."""
        from recsmith.planners.solver.cp_sat import solve
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        space = SpaceModel(self.evaluator, self.shares, self.faces)
        for settings in ({}, {"cp_model_presolve": False}):
            if not solve(space, {**settings, **self._limits(FIRST_UNITS)}, self.hear).impossible:
                return
        raise _no_plan(self.evaluator.problem)

    def _turn(self, start: Footprint, settings: dict[str, Any], units: float) -> None:
        """Better plans than the start, and a better bound; what contradicts the plan in hand is not believed."""
        from recsmith.planners.solver.cp_sat import solve, start_from
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        search = self.search
        space = SpaceModel(self.evaluator, self.shares, self.faces, search.total_s, self.bound_s)
        start_from(space, start)
        outcome = solve(space, {**settings, **self._limits(units)}, self.hear)
        believed = not outcome.impossible and outcome.bound_s <= search.total_s * (1 + CLOSE)
        self.proven = believed and outcome.proven
        self.learn(outcome.bound_s if believed else 0.0, outcome.spent)
        search.truncated |= not outcome.proven and outcome.spent < 0.9 * units  # by Ctrl-C or the clock

    def _limits(self, units: float) -> dict[str, float]:
        """Units of work, and what is left of a time limit; a second where there is no plan yet."""
        limits, search = {"max_deterministic_time": units}, self.search
        if search.budget.time_limit_s is not None:
            left = search.started + search.budget.time_limit_s - time.monotonic()
            limits["max_time_in_seconds"] = max(left, 1.0 if search.best is None else 0.0)
        return limits


class ByEnumeration(Proof):
    """The proof by trying all plans. monotone: see Enumeration."""

    how = "every plan tried or ruled out"

    def __init__(self, search: Search, shares: Shares, arrangements: list[Arrangements], *, monotone: bool) -> None:
        super().__init__(search)
        self.shares, self.arrangements, self.monotone = shares, arrangements, monotone

    def work(self) -> None:
        """Partial plans, until none is left to follow."""
        search = self.search
        tree = Enumeration(self.evaluator, self.shares, self.arrangements, search.total_s, monotone=self.monotone)
        while tree.open and not self.ends:
            tree.run(NODES, self.hear)
            self.learn(tree.bound, 1)
        if not tree.open and search.best is None:
            raise _no_plan(self.evaluator.problem)
        self.learn(tree.bound, 0)


def _no_plan(problem: Problem) -> Infeasible:
    return Infeasible(
        f"no plan fits: however the {len(problem.tables)} tables are laid in the space {problem.space.describe()}, a "
        "device or host lacks memory. Proved."
    )
