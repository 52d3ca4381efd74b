"""Planner `longest_first`: longest-first greedy on the pieces that trained policies place, without any policy.

What is split first follows the same four rules (placing/items.py). Pieces go, dearest first by the cost model, where a
device with them would cost least; the best of the four counts. It is what `cost_greedy` would be if it split tables,
and so what trained planners have to be ahead of.
"""

from dataclasses import dataclass

from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.protocol import Search, SearchPlanner, Solution


@dataclass(frozen=True)
class LongestFirst(SearchPlanner):
    """The best longest-first placement of the rules of what is split."""

    name: str = "longest_first"
    about: str = "Longest-first greedy on the pieces of dreamshard."

    def solve(self, search: Search) -> Solution:
        """One placement; NoPlanFound where tables find no room."""
        split = best_split(search.problem, search.evaluator)
        found = longest_first_plan(search.evaluator, split)
        search.try_(found.footprint(search.problem) if found else None)
        return search.found(self.name)
