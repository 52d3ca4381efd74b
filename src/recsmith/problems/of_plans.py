"""The problem that a plan solves, and whether a problem's space and rules hold a plan."""

from collections.abc import Sequence
from dataclasses import replace

from recsmith.errors import PlanMismatch
from recsmith.plans import Placement, Plan
from recsmith.problems.constraint_files import constraints_from_raw
from recsmith.problems.constraints import Constraints
from recsmith.problems.footprint import footprint_of
from recsmith.problems.problem import Problem, build_problem
from recsmith.problems.space import Space
from recsmith.problems.widths import torchrec_width


def problem_of(plan: Plan) -> Problem:
    """The problem that a plan solves, in the space that it names."""
    return build_problem(plan.workload, plan.cluster, *constraints_from_raw(plan.constraints, "plan"))


def problem_holding(problem: Problem, placements: Sequence[Placement]) -> Problem:
    """The problem itself, or where its space or rules leave placements out, one that holds them, so they are priced."""
    space = space_holding(problem.space, placements)
    cached = any(placement.cache for placement in placements)
    given = problem.constraints
    if space == problem.space and not given.parts and not cached:
        return problem
    limits = Constraints(memory=given.memory, keep_exact=given.keep_exact)
    return build_problem(problem.workload, problem.cluster, space, limits, needless=True)


def space_holding(space: Space, placements: Sequence[Placement]) -> Space:
    """The space with the types, kernels and cache factors of the placements besides its own."""
    return replace(
        space,
        types=(*space.types, *(placement.sharding_type for placement in placements)),
        kernels=(*space.kernels, *(placement.compute_kernel for placement in placements)),
        cache_factors=(*space.cache_factors, *(placement.load_factor for placement in placements if placement.cache)),
    )


def in_space(problem: Problem, placements: Sequence[Placement]) -> bool:
    """Whether placements lie in a problem's space: types, kernels, cache factors, widths, rules and constraints."""
    space, constraints = problem.space, problem.constraints
    tables = {table.name: table for table in problem.tables}
    least_width = dict(zip(tables, problem.least_width.tolist(), strict=True))
    for placement in placements:
        rule = constraints.rule_for(placement.table) if constraints.rules else None
        types = set(space.types) & set(rule.sharding_types or () if rule else space.types)
        kernels = set(space.kernels) & set(rule.compute_kernels or () if rule else space.kernels)
        if placement.sharding_type not in types or placement.compute_kernel not in kernels:
            return False
        if placement.cache and placement.load_factor not in ((rule and rule.cache_factors) or space.cache_factors):
            return False
        dim = tables[placement.table].embedding_dim
        widths = placement.widths_of(dim)
        least = least_width[placement.table]
        if min(widths) < min(least, dim):
            return False
        splits = placement.kind.splits_columns and space.widths == "torchrec"
        if splits and set(widths) != {torchrec_width(dim, least or None)}:
            return False
    return not problem.legality.any or _keep_constraints(problem, placements)


def _keep_constraints(problem: Problem, placements: Sequence[Placement]) -> bool:
    """Whether placements of the problem's types and widths keep what is said of ranks, and of tables together."""
    try:
        return problem.legality.holds(footprint_of(problem, tuple(placements), partial=True))
    except PlanMismatch:  # a type that has no place on the ranks that are open to the table
        return False
