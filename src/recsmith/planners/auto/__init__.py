"""Planner `auto`, the default: cheap placements first, then search from the best of them."""

from recsmith.planners.auto.planner import Auto

__all__ = ["Auto"]
