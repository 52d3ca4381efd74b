"""Planner `longest_first`: longest-first greedy on the pieces that trained policies place, without any policy.

The same four rules choose which tables are split first (placing/items.py). Pieces are placed in falling cost, each on
the device whose cost with the piece would be least; the best of the four plans is kept. This is what `cost_greedy`
would be if it split tables, so it is the baseline that trained planners have to beat.
"""

from dataclasses import dataclass

from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.protocol import Search, SearchPlanner, Solution


@dataclass(frozen=True)
class LongestFirst(SearchPlanner):
    """The best longest-first placement over the rules that choose which tables to split."""

    name: str = "longest_first"
    about: str = "Longest-first greedy on the pieces of dreamshard."

    def solve(self, search: Search) -> Solution:
        """Place the pieces once; raises NoPlanFound if some tables find no room."""
        split = best_split(search.problem, search.evaluator)
        found = longest_first_plan(search.evaluator, split)
        search.try_(found.footprint(search.problem) if found else None)
        return search.found(self.name)
