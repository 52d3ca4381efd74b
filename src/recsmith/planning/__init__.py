"""Planning: from a workload and a cluster to a Plan, and what an existing plan costs."""

from recsmith.planning.assemble import assemble_plan, make_plan
from recsmith.planning.options import SearchOptions, SearchWords
from recsmith.planning.plan import plan, plan_with
from recsmith.planning.registry import PLANNERS, find_planner
from recsmith.planning.result import Result

__all__ = [
    "PLANNERS",
    "Result",
    "SearchOptions",
    "SearchWords",
    "assemble_plan",
    "find_planner",
    "make_plan",
    "plan",
    "plan_with",
]
