"""Common base of surco and rnn: planners that learn while they plan, for one problem, and keep nothing.

Both split tables into items by the split rule that suits the problem best. Their learning yields drafts, one placement
after the other; the best one is the plan. If no draft has room, tables are placed longest first.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from recsmith import UsageError
from recsmith.costs import Evaluator
from recsmith.planners import Search, SearchPlanner, Solution
from recsmith.planners.placing import Assignment, SplitItems, best_split, longest_first_plan

MOST_DIGITS = 8  # digits of a number in a planner's name
SHOWN = 60  # characters of a name in a message


@dataclass(frozen=True)
class PerProblemPlanner(SearchPlanner):
    """A planner whose drafts improve from one to the next.

    lost: the report's sentence if no draft had room for every table. option, most: the field that a name may set, such
    as in surco?steps=50, and its largest value.
    """

    lost: ClassVar[str]
    option: ClassVar[str]
    most: ClassVar[int]

    name: str

    def with_options(self, text: str) -> Self:
        """The planner of a name that sets a number, such as rnn?episodes=800; UsageError for any other text."""
        usual = f"{self.name}?{self.option}="
        value = text.removeprefix(usual)
        plain = value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS
        if value == text or not plain or not 1 <= int(value) <= self.most:
            raise UsageError(
                f"'{text[:SHOWN]}' is no planner; write {self.name}, or {usual}{getattr(self, self.option)} with a "
                f"number from 1 to {self.most:,}"
            )
        option: dict[str, Any] = {self.option: int(value)}
        return type(self)(name=text, **option)

    @abstractmethod
    def check(self, split: SplitItems | None) -> None:
        """Raise an error if the problem is too large, or the machine lacks a package that learning needs."""

    @abstractmethod
    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment | None]:
        """Yields drafts, each an iteration; None for one without room. split: None if a table has no split."""

    def solve(self, search: Search) -> Solution:
        """The best of all drafts; an iteration is a draft. NoPlanFound if tables do not fit.

        Raises:
            UsageError: the problem is too large for the planner. MissingExtra: a package that it needs is missing.
        """
        lost = False
        with search.interruptible():
            split = best_split(search.problem, search.evaluator)
            self.check(split)
            lost = not self._try_drafts(search, split)
            if lost:
                found = longest_first_plan(search.evaluator, split)
                search.try_(found.footprint(search.problem) if found else None)
        return replace(search.found(self.name), left_out=(self.lost,) if lost else ())

    def _try_drafts(self, search: Search, split: SplitItems | None) -> bool:
        """Try drafts until the budget is spent; returns whether one of them had room."""
        placed = False
        for draft in self.drafts(split, search.evaluator, search.seed):
            placed = placed or draft is not None
            search.try_(draft.footprint(search.problem) if draft else None)
            if search.stop:
                break
        return placed
