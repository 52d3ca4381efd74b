"""The protocol of planners: who calls what, when.

    planner.plan(problem, evaluator, seed=, budget=, start=, on_improve=) -> Solution

A `SearchPlanner` is given all of this as one `Search`, which keeps the best of what it tries. A planner chooses an
option per table and a target per piece. It only sees arrays; `recsmith.plan` makes the Plan. What holds for every
planner (recsmith.testing.PlannerContract asks it): the solution is complete, legal and within memory; the same seed
gives the same solution for any order of the tables; a budget of iterations or time is kept; a `start` is never made
worse; `on_improve` hears of every improvement and may cancel by returning True; where it finds nothing it raises
NoPlanFound.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from recsmith.costs import Evaluator, step_seconds
from recsmith.errors import NoPlanFound, UsageError
from recsmith.planners.search.placement import mended
from recsmith.plans import Bound
from recsmith.problems import Footprint, Problem

OnImprove = Callable[[float], bool | None]
MOMENT_S = 1e-9  # seconds that a spent limit of time still has, so that it stays a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long to search: iterations (reproducible), seconds (a search that they end is marked truncated), or both.

    Raises UsageError for a limit that leaves nothing to do.
    """

    iterations: int | None = None
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Check that something can be done within it."""
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(f"a search of {self.iterations} iterations finds nothing; allow at least 1")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise UsageError(f"a time limit of {self.time_limit_s:g} s leaves no time; give more, for example 10s")

    def less(self, seconds: float) -> "Budget":
        """What is left once so many seconds have gone; at least a moment, for a first plan."""
        if self.time_limit_s is None:
            return self
        return replace(self, time_limit_s=max(self.time_limit_s - seconds, MOMENT_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a search found: the placed pieces, the step's seconds, and how many iterations it took.

    truncated: whether a limit of time or the caller cut it short. members: the parts that finished of a search made of
    several. left_out: what it would have done besides with an extra that is not installed, or with the module that a C
    compiler builds, as sentences for a report.
    bound: what the search proved, where that is more than the cost model's own bound.
    """

    footprint: Footprint
    total_s: float
    iterations: int
    truncated: bool = False
    members: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    bound: Bound | None = None


@runtime_checkable
class Planner(Protocol):
    """A named way to search."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

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
        """The best placement found; NoPlanFound where there is none."""
        ...


@runtime_checkable
class TakesOptions(Planner, Protocol):
    """A planner whose name may carry options behind '?' or ':', such as mine?rounds=8."""

    def with_options(self, text: str) -> Planner:
        """The planner of a name with options, all of which is its name; UsageError, with what to write, for another."""
        ...


class Search:
    """Keeps the best of what a planner tries, counts iterations, and says when to stop.

    best, total_s: the best placement and its seconds; None and infinite while there is none. seed: of what is drawn.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.evaluator, self.problem, self.seed = evaluator, evaluator.problem, seed
        self.budget = budget or Budget()
        self.on_improve = on_improve
        self.started = time.monotonic()
        self.iterations = 0
        self.truncated = self.cancelled = False
        self.best: Footprint | None = None
        self.total_s = float("inf")
        if start is not None:
            self._keep(start, step_seconds(evaluator, start))

    def try_(self, footprint: Footprint | None, total_s: float | None = None) -> float:
        """Count one iteration, and keep its footprint if it is the best yet; its seconds, infinite for None.

        What breaks a constraint is mended first, or does not count where that fails.

        total_s: these seconds, where the caller knows them.
        """
        self.iterations += 1
        if footprint is not None and not self.problem.legality.holds(footprint):
            footprint, total_s = mended(self.evaluator, footprint), None
        if footprint is None:
            return float("inf")
        total = step_seconds(self.evaluator, footprint) if total_s is None else total_s
        self._keep(footprint, total)
        return total

    def _keep(self, footprint: Footprint, total: float) -> None:
        if total < self.total_s:
            self.best, self.total_s = footprint, total
            self.cancelled = bool(self.on_improve and self.on_improve(total))

    def is_early(self, share: float) -> bool:
        """Whether less than this share of the time limit has passed; always without one."""
        limit = self.budget.time_limit_s
        return limit is None or time.monotonic() - self.started < share * limit

    @property
    def stop(self) -> bool:
        """Whether the budget is spent or the caller has cancelled; at least one iteration is always made."""
        if self.iterations == 0:
            return False
        limit = self.budget.time_limit_s
        if limit is not None and time.monotonic() - self.started >= limit:
            self.truncated = True
        if self.cancelled:
            self.truncated = True
        return self.truncated or self.iterations >= (self.budget.iterations or float("inf"))

    @contextmanager
    def interruptible(self) -> Generator[None]:
        """Ctrl-C ends the search early; the best found by then counts, and without any the interrupt goes on."""
        try:
            yield
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.truncated = True

    def found(self, planner: str, message: str = "") -> Solution:
        """The best found; where there is none, NoPlanFound with a message, or one that names the planner."""
        solution = self.solution()
        if solution is None:
            raise NoPlanFound(
                message
                or f"planner {planner} found no room for every table; try --planner auto, more types, or more memory"
            )
        return solution

    def solution(self) -> Solution | None:
        """The best found, or None."""
        if self.best is None:
            return None
        return Solution(footprint=self.best, total_s=self.total_s, iterations=self.iterations, truncated=self.truncated)


class SearchPlanner(ABC):
    """A planner that works on one `Search`: a class of its own says how in `solve`, and has a name."""

    name: str

    @abstractmethod
    def solve(self, search: Search) -> Solution:
        """The best placement found; NoPlanFound where there is none."""

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
        """`solve`, as the protocol asks for it; the evaluator knows its problem."""
        del problem
        return self.solve(Search(evaluator, budget, start, on_improve, seed=seed))
