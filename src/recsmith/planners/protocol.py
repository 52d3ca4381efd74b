"""The protocol of planners: who calls what, when.

    planner.plan(problem, evaluator, seed=, budget=, start=, on_improve=) -> Solution

A `SearchPlanner` is given all of this as one `Search`, which keeps the best of what it tries. A planner chooses an
option per table and a target per piece. It only sees arrays; `recsmith.plan` makes the Plan. Every planner keeps these
rules (recsmith.testing.PlannerContract checks them): the solution is complete, legal and within memory; the same seed
gives the same solution for any order of the tables; a budget of iterations or time is kept; the solution is never worse
than `start`; `on_improve` is called with the seconds of every improvement and may cancel by returning True; a planner
that finds no plan raises NoPlanFound.
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
MOMENT_S = 1e-9  # seconds that remain of a time limit that is used up, so that it is still a valid limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long to search: iterations (reproducible), seconds (a search cut short by them is marked truncated), or both.

    Raises UsageError for a limit that leaves no work to do.
    """

    iterations: int | None = None
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Check that both limits leave some work to do."""
        if self.iterations is not None and self.iterations < 1:
            raise UsageError(f"a search of {self.iterations} iterations finds nothing; allow at least 1")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise UsageError(f"a time limit of {self.time_limit_s:g} s leaves no time; give more, for example 10s")

    def less(self, seconds: float) -> "Budget":
        """The budget that is left after this many seconds; a time limit keeps at least a moment, for a first plan."""
        if self.time_limit_s is None:
            return self
        return replace(self, time_limit_s=max(self.time_limit_s - seconds, MOMENT_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a search found: the placed pieces, the seconds of the step, and how many iterations were made.

    truncated: whether a time limit or the caller cut the search short. members: the parts that finished, of a search
    made of several. left_out: what the search would also have done with an extra that is not installed, or with a
    module that needs a C compiler to build, as sentences for a report. bound: the bound that the search proved, if it
    is higher than the cost model's own bound.
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
    """A search strategy with a name."""

    @property
    def name(self) -> str:
        """The planner's name on the command line."""
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
        """Return the best placement found; raises NoPlanFound if none was found."""
        ...


@runtime_checkable
class TakesOptions(Planner, Protocol):
    """A planner whose name may carry options behind '?' or ':', such as mine?rounds=8."""

    def with_options(self, text: str) -> Planner:
        """Return the planner that has this text, name and options, as its name.

        Raises UsageError, which says what to write instead, if the options are invalid.
        """
        ...


class Search:
    """Keeps the best of what a planner tries, counts iterations, and says when to stop.

    best, total_s: the best placement and its seconds per step; None and infinite until one is found. seed: the seed of
    all random draws.
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
        """Count one iteration and keep the footprint if it is the best yet; returns its seconds, infinite for None.

        A footprint that breaks a constraint is mended first; if that fails, it counts as None.

        total_s: the footprint's seconds, if the caller knows them.
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
        """Whether less than this share of the time limit has passed; always true without a time limit."""
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
        """Let Ctrl-C end the search early with the best plan so far; without a plan, the interrupt is raised again."""
        try:
            yield
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.truncated = True

    def found(self, planner: str, message: str = "") -> Solution:
        """Return the best solution; without one, raise NoPlanFound with the message, or one that names the planner."""
        solution = self.solution()
        if solution is None:
            raise NoPlanFound(
                message
                or f"planner {planner} found no room for every table; try --planner auto, more types, or more memory"
            )
        return solution

    def solution(self) -> Solution | None:
        """The best solution found, or None."""
        if self.best is None:
            return None
        return Solution(footprint=self.best, total_s=self.total_s, iterations=self.iterations, truncated=self.truncated)


class SearchPlanner(ABC):
    """A planner that works on one `Search`: a subclass sets `name` and implements `solve`."""

    name: str

    @abstractmethod
    def solve(self, search: Search) -> Solution:
        """Return the best placement found; raises NoPlanFound if none was found."""

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
        """Run `solve` with the arguments of the planner protocol; the problem is taken from the evaluator."""
        del problem
        return self.solve(Search(evaluator, budget, start, on_improve, seed=seed))
