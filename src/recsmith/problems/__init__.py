"""The search problem as arrays: the options of every table, and the footprint of placed pieces."""

from recsmith.problems.footprint import (
    Footprint,
    fits,
    footprint_of,
    memory_used,
    option_pieces,
    ordered_footprint,
    placements_of,
    sum_per_rank,
)
from recsmith.problems.of_plans import in_space, problem_holding, problem_of, space_holding
from recsmith.problems.problem import NO_PIECE, Problem, build_problem
from recsmith.problems.space import (
    Constraints,
    Space,
    TableRule,
    constraints_from_raw,
    constraints_to_raw,
    load_constraints,
)

__all__ = [
    "NO_PIECE",
    "Constraints",
    "Footprint",
    "Problem",
    "Space",
    "TableRule",
    "build_problem",
    "constraints_from_raw",
    "constraints_to_raw",
    "fits",
    "footprint_of",
    "in_space",
    "load_constraints",
    "memory_used",
    "option_pieces",
    "ordered_footprint",
    "placements_of",
    "problem_holding",
    "problem_of",
    "space_holding",
    "sum_per_rank",
]
