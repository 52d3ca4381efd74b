"""Planning: from a workload and a cluster to a Plan, and what an existing plan costs."""

from recsmith.planning.plan import plan
from recsmith.planning.registry import PLANNERS, find_planner
from recsmith.planning.result import Result

__all__ = ["PLANNERS", "Result", "find_planner", "plan"]
