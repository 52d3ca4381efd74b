"""The best plan of a small problem, and the proof that none is better.

Other planners try a sample of the ways to place a table; this one searches the whole space that the problem states
(solver/layouts.py), by CP-SAT of OR-Tools on the model of solver/cp_sat_model.py. Without OR-Tools, and for cost
models that are not made of linear pieces, very small problems are enumerated (solver/enumeration.py).
"""

from dataclasses import replace

from recsmith._install import SOLVER
from recsmith.costs import Evaluator
from recsmith.errors import MissingExtra, NoPlanFound, UsageError
from recsmith.planners.auto.planner import Auto
from recsmith.planners.exact.proofs import EnumerationProof, Proof, SolverProof
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.arrangements import arrangements_of
from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.layouts import all_shares, choices_of
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint, Problem

MOST_CHOICES = 60_000  # widths of all tables times devices; more would fill the memory with variables of the solver
MOST_TABLES, MOST_ARRANGEMENTS = 12, 20_000  # of an enumeration, which takes some seconds for these; not tuned further
AUTO_SHARE = 0.25  # of a time limit that planner auto may take; trade-off: a better start, or more time for the proof


class Exact:
    """The best plan, proven, for about ten tables; better plans and bounds than others' for some tens."""

    name = "exact"
    about = "The best plan of a small problem, with the proof."

    def plan(
        self,
        problem: Problem,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
    ) -> Solution:
        """The best plan found, and a bound where it beats the cost model's own.

        The first iteration is planner auto's plan, each further one a unit of work on it: about a second.

        Raises:
            Infeasible: there is no plan, proved. NoPlanFound: none was found.
            MissingExtra: the problem is too large without OR-Tools. UsageError: it is too large even so.
        """
        search = Search(evaluator, budget, start, on_improve)
        proof = _proof(search)
        with search.interruptible():
            _start(search, seed)
            proof.work()
        solution = search.solution()
        if solution is None:
            raise NoPlanFound(
                "no plan was found, and none was proved impossible; allow more types or widths any, reserve less, or "
                "add devices"
            )
        return replace(solution, bound=proof.bound)


def _start(search: Search, seed: int) -> None:
    """Start from planner auto's plan, where it finds one; it needs a cost model with planes."""
    evaluator, limit = search.evaluator, search.budget.time_limit_s
    share = None if limit is None else Budget(time_limit_s=limit * AUTO_SHARE)
    try:
        found = Auto().plan(evaluator.problem, evaluator, seed=seed, budget=share) if evaluator.planes else None
    except NoPlanFound:
        found = None
    search.try_(found and found.footprint)
    search.truncated = found is not None and found.truncated and limit is None  # by Ctrl-C


def _proof(search: Search) -> Proof:
    """What proves plans of this problem; MissingExtra or UsageError where nothing does."""
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
        raise UsageError(f"the cost model is not made of planes, so planner exact takes at most {limit}; use auto")
    raise MissingExtra(f"planner exact needs OR-Tools for more than {limit}: {SOLVER}; or use planner auto")


def _check_size(problem: Problem) -> None:
    """Refuse what would fill the memory with choices."""
    choices = choices_of(problem)
    if choices > MOST_CHOICES:
        raise UsageError(
            f"planner exact takes up to {MOST_CHOICES:,} choices, widths of all tables times devices; this problem has "
            f"{choices:,}: use planner auto, or widths torchrec"
        )
