"""Searching: one planner, one file; shared placement and repair beside them."""

from recsmith.planners._base import Budget, OnImprove, Planner, Search, Solution
from recsmith.planners.plan import PLANNERS, find_planner, plan
from recsmith.planners.result import Result

__all__ = ["PLANNERS", "Budget", "OnImprove", "Planner", "Result", "Search", "Solution", "find_planner", "plan"]
