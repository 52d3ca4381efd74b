"""From placements and their price to a Plan: the one place where a plan is put together."""

from recsmith.bounds import lower_bound
from recsmith.costs import Evaluator, price
from recsmith.plans import Bound, Placement, Plan, StepCost, digest_of, sorted_by_name
from recsmith.problems import Footprint, Problem, constraints_to_raw, placements_of


def assemble_plan(
    problem: Problem,
    placements: tuple[Placement, ...],
    cost: StepCost,
    *,
    planner: str,
    cost_model: str,
    bound: Bound,
    gap: float | None,
    extrapolated: dict[str, float],
) -> Plan:
    """The Plan of priced placements: tables by name, the space and rules of the problem, and the digest."""
    workload = sorted_by_name(problem.workload)
    constraints = constraints_to_raw(problem.space, problem.constraints)
    return Plan(
        workload=workload,
        cluster=problem.cluster,
        constraints=constraints,
        placements=placements,
        planner=planner,
        cost_model=cost_model,
        cost=cost,
        bound=bound,
        gap=gap,
        extrapolated=extrapolated,
        digest=digest_of(workload, problem.cluster, constraints, placements),
    )


def make_plan(
    evaluator: Evaluator, footprint: Footprint, *, planner: str, cost_model: str, bound: Bound | None = None
) -> Plan:
    """The Plan of placed pieces, priced by an evaluator; the bound of the cost model where the search proved none."""
    cost, bound = price(evaluator, footprint), bound or lower_bound(evaluator).bound
    return assemble_plan(
        evaluator.problem, placements_of(evaluator.problem, footprint), cost, planner=planner, cost_model=cost_model,
        bound=bound, gap=bound.gap(cost.total_s), extrapolated=evaluator.extrapolated,
    )  # fmt: skip
