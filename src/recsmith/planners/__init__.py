"""Planners: ways to search for a plan. Each is a file or a folder; what they share is in search/ and solver/."""

from recsmith.planners.protocol import Budget, OnImprove, Planner, Search, Solution

__all__ = ["Budget", "OnImprove", "Planner", "Search", "Solution"]
