"""Planners, the strategies that search for a plan. Each is a file or a folder; search/ and solver/ hold shared code.

A planner of your own fulfils `Planner`. `Search` keeps the best plan that was tried, `SearchPlanner` is a base class
that is given one, and `place_by_score` places tables one after the other (docs/extending.md).
"""

from recsmith.planners.greedy import place_by_score
from recsmith.planners.protocol import Budget, OnImprove, Planner, Search, SearchPlanner, Solution, TakesOptions

__all__ = ["Budget", "OnImprove", "Planner", "Search", "SearchPlanner", "Solution", "TakesOptions", "place_by_score"]
