"""Planners: ways to search for a plan. Each is a file or a folder; what they share is in search/ and solver/.

A planner of your own fulfils `Planner`; `Search` keeps the best of what it tries, `SearchPlanner` starts from one, and
`place_by_score` places tables one after the other (docs/extending.md).
"""

from recsmith.planners.greedy import place_by_score
from recsmith.planners.protocol import Budget, OnImprove, Planner, Search, SearchPlanner, Solution, TakesOptions

__all__ = ["Budget", "OnImprove", "Planner", "Search", "SearchPlanner", "Solution", "TakesOptions", "place_by_score"]
