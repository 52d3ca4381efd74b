"""Planner `exact`: the best plan of a small problem, and the proof that none is better."""

from recsmith.planners.exact.planner import Exact

__all__ = ["Exact"]
