"""Planner `surco`: linear costs are learned for one problem, whose cheapest assignment is a good plan."""

from recsmith.planners.surco.planner import SurCo

__all__ = ["SurCo"]
