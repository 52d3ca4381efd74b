"""Planning: from a workload and a cluster to a plan, and the cost of an existing plan."""

from recsmith.planning.plan import plan, plan_with
from recsmith.planning.registry import PLANNERS, find_planner
from recsmith.planning.result import Result, SearchArguments, SearchOptions, assemble_plan, make_plan

__all__ = [
    "PLANNERS",
    "Result",
    "SearchArguments",
    "SearchOptions",
    "assemble_plan",
    "find_planner",
    "make_plan",
    "plan",
    "plan_with",
]
