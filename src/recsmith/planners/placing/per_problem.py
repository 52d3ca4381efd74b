"""Planners that learn while they plan, for one problem, and keep nothing: what surco and rnn have in common.

Both place the items of the rule of what is split that suits the problem (best_split.py). What they learn are drafts,
one placement after the other; the best is the plan. Where none of them had room, tables go longest first.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from recsmith.costs import Evaluator
from recsmith.planners.placing.best_split import SplitItems, best_split, longest_first_plan
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.planners.search.assignment import Assignment
from recsmith.problems import Footprint, Problem


@dataclass(frozen=True)
class PerProblemPlanner(ABC):
    """A planner whose drafts get better. lost: what a report says where no draft had room for every table."""

    lost: ClassVar[str]

    name: str

    @abstractmethod
    def check(self, split: SplitItems | None) -> None:
        """Refuse a problem that is too large, or a machine that lacks what learning needs."""

    @abstractmethod
    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment | None]:
        """One draft after the other, each an iteration; None where it had no room. No split: a table has none."""

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
        """The best of all drafts; NoPlanFound where tables find no room. An iteration is a draft.

        Raises:
            UsageError: the problem is too large for the planner. MissingExtra: a package that it needs is missing.
        """
        search = Search(evaluator, budget, start, on_improve)
        lost = False
        with search.interruptible():
            split = best_split(problem, evaluator)
            self.check(split)
            lost = not self._try_drafts(search, split, seed)
            if lost:
                found = longest_first_plan(evaluator, split)
                search.try_(found.footprint(problem) if found else None)
        return replace(search.found(self.name), left_out=(self.lost,) if lost else ())

    def _try_drafts(self, search: Search, split: SplitItems | None, seed: int) -> bool:
        """Try drafts until the budget is spent; whether one of them had room."""
        placed = False
        for draft in self.drafts(split, search.evaluator, seed):
            placed = placed or draft is not None
            search.try_(draft.footprint(search.evaluator.problem) if draft else None)
            if search.stop:
                break
        return placed
