"""Planner `exact`: the best plan of a small problem, and the proof that no plan is better.

Other planners try a sample of the ways to place a table. This one searches the problem's whole space
(solver/layouts.py), with CP-SAT of OR-Tools on the model of solver/cp_sat_model.py. Without OR-Tools, and for cost
models that are not made of linear pieces, very small problems are enumerated (solver/enumeration.py). Work is counted
in units that are the same on every machine.
"""

import math
import sys
import time
from dataclasses import replace
from itertools import count
from typing import Any

from recsmith._install import SOLVER
from recsmith.bounds import lower_bound
from recsmith.bounds.lower_bound import prove
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, UsageError
from recsmith.planners.auto.planner import Auto
from recsmith.planners.protocol import Budget, Search, SearchPlanner, Solution
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.enumeration import Arrangements, Enumeration, arrangements_of
from recsmith.planners.solver.layouts import Shares, all_shares, choices_of, useful_shares
from recsmith.planners.solver.linear_pieces import LinearPieces, linear_pieces_of
from recsmith.plans import EXACT, Bound
from recsmith.problems import Footprint, Problem

MOST_CHOICES = 60_000  # widths of all tables times devices; more would fill the memory with the solver's variables
MOST_TABLES, MOST_ARRANGEMENTS = 12, 20_000  # of an enumeration at most; these take some seconds; not tuned further
AUTO_SHARE = 0.25  # of a time limit, for planner auto; trade-off: a better start, or more time for the proof
UNITS = 63  # work without a budget, in units of about a second: three rounds of turns (3 * (1 + 4 + 16))
FIRST_UNITS = 20  # units of work to find a first plan if there is no start; about 20 s, not tuned further
NODES = 500  # partial plans of an enumeration in a unit of work; trade-off: fewer check the budget more often
TURNS: tuple[dict[str, Any], ...] = (  # settings of CP-SAT
    {"linearization_level": 2},
    {"interleave_search": True},  # all strategies of CP-SAT in turn, among them neighbourhoods of the best plan
    {"linearization_level": 2, "optimize_with_lb_tree_search": True},
)
PARTS, PART = 50, 0.2  # branching between the first two rounds: the most parts, and the units of work of each
GROWTH = 4.0  # of a turn's units per round; trade-off: more waste less on starts, but react later to better plans
CLOSE = 1e-7  # relative gap that counts as zero: rounded seconds prove no smaller gap (solver/cp_sat_model.py)
USED_UP = 0.9  # share of a turn's units: a turn that ends unproven with less spent was cut short by Ctrl-C or the clock


class Exact(SearchPlanner):
    """The proven best plan of about ten tables; for some tens, better plans and bounds than other planners find."""

    name = "exact"
    about = "The best plan of a small problem, with the proof."

    def solve(self, search: Search) -> Solution:
        """Return the best plan found, with a bound if it is better than the cost model's own.

        The first iteration is planner auto's plan; each further iteration is a unit of work on it, about a second.

        Raises:
            Infeasible: it is proved that no plan exists. NoPlanFound: no plan was found.
            MissingExtra: the problem is too large without OR-Tools. UsageError: the problem is too large even with it.
        """
        proof = _proof(search)
        with search.interruptible():
            _start(search)
            proof.work()
        found = search.found(
            self.name,
            "no plan was found, and none was proved impossible; allow more types or widths any, reserve less, or "
            "add devices",
        )
        return replace(found, bound=proof.bound)


def _start(search: Search) -> None:
    """Start from planner auto's plan, if it finds one; planner auto is asked only for cost models made of planes."""
    evaluator, limit = search.evaluator, search.budget.time_limit_s
    share = None if limit is None else Budget(time_limit_s=limit * AUTO_SHARE)
    try:
        found = Auto().plan(evaluator.problem, evaluator, seed=search.seed, budget=share) if evaluator.planes else None
    except NoPlanFound:
        found = None
    search.try_(found and found.footprint)
    search.truncated = found is not None and found.truncated and limit is None  # cut short by Ctrl-C


def _proof(search: Search) -> "Proof":
    """The proof method for this problem; raises MissingExtra or UsageError if there is none."""
    evaluator, problem = search.evaluator, search.evaluator.problem
    _check_size(problem)
    shares = all_shares(evaluator)
    linear_pieces = linear_pieces_of(evaluator, shares.terms)
    if linear_pieces is not None:
        shares = useful_shares(evaluator, shares)
        if is_installed():
            return SolverProof(search, shares, linear_pieces)
    arrangements = arrangements_of(problem, shares, MOST_ARRANGEMENTS) if len(problem.tables) <= MOST_TABLES else None
    if arrangements is not None:
        return EnumerationProof(search, shares, arrangements, monotone=linear_pieces is not None)
    limit = f"{MOST_TABLES} tables and {MOST_ARRANGEMENTS:,} ways to lay them"
    if linear_pieces is None:
        raise UsageError(
            f"the cost model is not made of planes, so planner exact takes at most {limit}; use auto, or prove under "
            "cost model analytic"
        )
    raise MissingExtra(f"planner exact needs OR-Tools for more than {limit}: {SOLVER}; or use planner auto")


def _check_size(problem: Problem) -> None:
    """Refuse problems whose choices would fill the memory, or whose memory model the solver does not support."""
    if problem.memory_model.mixed:
        raise UsageError(
            "planner exact adds up the memory of tables one by one, and tables of several widths share a cache here; "
            "leave kernel fused_uvm_caching to tables of one width by rules, or use planner auto"
        )
    choices = choices_of(problem)
    if choices > MOST_CHOICES:
        raise UsageError(
            f"planner exact takes up to {MOST_CHOICES:,} choices, widths of all tables times devices; this problem has "
            f"{choices:,}: use planner auto, or widths torchrec"
        )


# --- proofs -----------------------------------------------------------------------------------------------------------


class Proof:
    """Improves the plan of a search, and `bound_s`, the seconds that every plan takes at least.

    spent: units of work so far. proven: whether the search's plan is proved to be the best.
    """

    method: str

    def __init__(self, search: Search) -> None:
        self.search, self.evaluator = search, search.evaluator
        self.bound_s = lower_bound(self.evaluator).bound.value_s or 0.0
        self.spent, self.proven = 0.0, False

    def work(self) -> None:
        """Work until the plan is proven or the budget is spent; Infeasible if it is proved that no plan exists."""
        raise NotImplementedError

    @property
    def bound(self) -> Bound | None:
        """The bound, or None if it is no better than the cost model's own."""
        known = lower_bound(self.evaluator).bound
        if known.value_s is not None and self.bound_s <= known.value_s:
            return None
        return Bound(value_s=min(self.bound_s, self.search.total_s), kind=f"{EXACT}{self.method}", space=known.space)

    @property
    def left(self) -> float:
        """Units of work that the budget leaves; a first plan is searched for whatever the budget."""
        budget = self.search.budget
        if self.search.best is None:
            return FIRST_UNITS - self.spent
        if budget.iterations is not None:
            return budget.iterations - 1 - self.spent
        return UNITS - self.spent if budget.time_limit_s is None else math.inf

    @property
    def ends(self) -> bool:
        """Whether the plan is proven, or the budget is spent."""
        total_s = self.search.total_s
        proven = self.proven or total_s == 0 or total_s <= self.bound_s * (1 + CLOSE)
        return proven or self.left <= 0 or (self.search.best is not None and self.search.stop)

    def on_plan(self, footprint: Footprint) -> bool:
        """Keep a plan if it is the best; returns whether the search is cancelled."""
        self.search.try_(footprint)
        self.search.iterations -= 1  # an iteration is a unit of work, not a plan
        return self.search.cancelled

    def record(self, bound_s: float, units: float) -> None:
        """Record a bound that this many units of work have proven."""
        self.bound_s = max(self.bound_s, bound_s)
        self.spent += units
        self.search.iterations = min(1 + math.ceil(self.spent), self.search.budget.iterations or sys.maxsize)


class SolverProof(Proof):
    """The proof by CP-SAT: three strategies take turns of 1, 1, 1, 4, 4, 4, 16 ... units, from the best plan and bound.

    The first strategy improves plans and bounds, the second mostly plans, the third mostly bounds.
    """

    method = "CP-SAT, and branching over the slowest rank, over the whole space"

    def __init__(self, search: Search, shares: Shares, linear_pieces: LinearPieces) -> None:
        super().__init__(search)
        self.shares, self.linear_pieces = shares, linear_pieces

    def work(self) -> None:
        """Take turns until the plan is proven."""
        if self.search.best is None:
            self._find_any()
        for turn in count():
            if turn == len(TURNS):
                self._branch()
            if self.search.best is None or self.ends:
                return
            self._turn(self.search.best, TURNS[turn % len(TURNS)], min(GROWTH ** (turn // len(TURNS)), self.left))

    def _branch(self) -> None:
        """Raise the bound by branching over the slowest rank's seconds: on many devices this beats the solver."""
        if self.search.best is None or self.ends:
            return
        parts, search = iter(range(PARTS)), self.search
        bound = prove(self.evaluator, search.total_s, lambda: not search.stop and next(parts, None) is not None)
        self.record(bound.value_s or 0.0, (PARTS - len(list(parts))) * PART)

    def _find_any(self) -> None:
        """Find any plan; Infeasible is raised only if the solver says so both with and without its presolve."""
        from recsmith.planners.solver.cp_sat import solve
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        space = SpaceModel(self.evaluator, self.shares, self.linear_pieces)
        for settings in ({}, {"cp_model_presolve": False}):
            if not solve(space, {**settings, **self._limits(FIRST_UNITS)}, self.on_plan).impossible:
                return
        raise _no_plan(self.evaluator.problem)

    def _turn(self, start: Footprint, settings: dict[str, Any], units: float) -> None:
        """Search for plans better than the start, and a better bound; results that contradict the start are ignored."""
        from recsmith.planners.solver.cp_sat import solve, start_from
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        search = self.search
        space = SpaceModel(self.evaluator, self.shares, self.linear_pieces, search.total_s, self.bound_s)
        start_from(space, start)
        run = solve(space, {**settings, **self._limits(units)}, self.on_plan)
        believed = not run.impossible and run.bound_s <= search.total_s * (1 + CLOSE)
        self.proven = believed and run.proven
        self.record(run.bound_s if believed else 0.0, run.spent)
        search.truncated |= not run.proven and run.spent < USED_UP * units

    def _limits(self, units: float) -> dict[str, float]:
        """Units of work, and the time left of a time limit; at least a second if there is no plan yet."""
        limits, search = {"max_deterministic_time": units}, self.search
        if search.budget.time_limit_s is not None:
            left = search.started + search.budget.time_limit_s - time.monotonic()
            limits["max_time_in_seconds"] = max(left, 1.0 if search.best is None else 0.0)
        return limits


class EnumerationProof(Proof):
    """The proof by trying all plans. monotone: see Enumeration."""

    method = "every plan tried or ruled out"

    def __init__(self, search: Search, shares: Shares, arrangements: list[Arrangements], *, monotone: bool) -> None:
        super().__init__(search)
        self.shares, self.arrangements, self.monotone = shares, arrangements, monotone

    def work(self) -> None:
        """Extend partial plans until none is open."""
        search = self.search
        tree = Enumeration(self.evaluator, self.shares, self.arrangements, search.total_s, monotone=self.monotone)
        while tree.open and not self.ends:
            tree.run(NODES, self.on_plan)
            self.record(tree.bound, 1)
        if not tree.open and search.best is None:
            raise _no_plan(self.evaluator.problem)
        self.record(tree.bound, 0)


def _no_plan(problem: Problem) -> Infeasible:
    return Infeasible(
        f"no plan fits: however the {len(problem.tables)} tables are placed, with {problem.planned_space.words}, a "
        "device or host lacks memory. Proved."
    )
