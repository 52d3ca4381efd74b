"""The search problem as arrays: the options of every table, and the footprint of placed pieces."""

from recsmith.problems.constraint_files import constraints_from_raw, constraints_to_raw, load_constraints, pins_of
from recsmith.problems.constraints import Apart, Constraints, PerRank, Together
from recsmith.problems.footprint import (
    Footprint,
    PlannedSpace,
    check_solves,
    fits,
    footprint_of,
    in_space,
    memory_taken,
    memory_used,
    option_pieces,
    ordered_footprint,
    placements_of,
    problem_holding,
    problem_of,
    space_holding,
    sum_per_group,
    sum_per_rank,
)
from recsmith.problems.kept import broken_constraint
from recsmith.problems.legality import Legality
from recsmith.problems.options import NO_PIECE
from recsmith.problems.problem import Problem, build_problem, bytes_beneath
from recsmith.problems.space import Pin, Space, TableRule

__all__ = [
    "NO_PIECE", "Apart", "Constraints", "Footprint", "Legality", "PerRank", "Pin", "PlannedSpace", "Problem",
    "Space", "TableRule", "Together", "broken_constraint", "build_problem", "bytes_beneath", "check_solves",
    "constraints_from_raw", "constraints_to_raw", "fits", "footprint_of", "in_space", "load_constraints",
    "memory_taken", "memory_used", "option_pieces", "ordered_footprint", "pins_of", "placements_of",
    "problem_holding", "problem_of", "space_holding", "sum_per_group", "sum_per_rank",
]  # fmt: skip
