"""What a plan costs under a cost model, and how far that is from the best of its space."""

from dataclasses import replace

import numpy as np

from recsmith.costs import CostModel, Evaluator
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs._base import price
from recsmith.costs.sensitivity import hosting
from recsmith.plans import Plan, StepCost
from recsmith.problems import Footprint, Problem, build_problem, constraints_from_raw, footprint_of, memory_used
from recsmith.problems.widths import torchrec_width


def simulate(plan: Plan, cost_model: str | None = None) -> Plan:
    """The same plan priced by a cost model (its own by default): cost, bound of its space, and gap.

    The gap is None where the plan lies outside the space it names, or where the model gives no bound. A bound that a
    search has proved is believed, for a plan that still costs what it says.
    """
    model = find_cost_model(cost_model or plan.cost_model)
    evaluator, host, footprint = _compiled(plan, model)
    cost = price(host, footprint)
    bound = evaluator.outlook.bound
    if plan.bound.searched and (plan.cost_model, plan.cost, plan.bound.space) == (model.name, cost, bound.space):
        bound = plan.bound
    legal = in_space(evaluator.problem, plan) and fits(host.problem, footprint)
    return replace(
        plan, cost_model=model.name, cost=cost, bound=bound, gap=bound.gap(cost.total_s) if legal else None,
        extrapolated=evaluator.extrapolated,
    )  # fmt: skip


def price_plan(plan: Plan, cost_model: str | None = None) -> StepCost:
    """What `simulate` says a plan costs, without the bound that it takes longer to find."""
    _, host, footprint = _compiled(plan, find_cost_model(cost_model or plan.cost_model))
    return price(host, footprint)


def _compiled(plan: Plan, model: CostModel) -> tuple[Evaluator, Evaluator, Footprint]:
    """The evaluator of the plan's space, the one of a space that holds the plan, and the plan's footprint in that."""
    space, constraints = constraints_from_raw(plan.constraints, "plan")
    problem = build_problem(plan.workload, plan.cluster, space, constraints)
    evaluator = model.compile(problem)
    hosts = hosting(problem, plan.placements)
    host = evaluator if hosts is problem else model.compile(hosts)
    footprint = footprint_of(host.problem, plan.placements)
    return evaluator, host, _in_order_of(problem, host.problem, footprint)


def _in_order_of(problem: Problem, host: Problem, footprint: Footprint) -> Footprint:
    """The host's footprint in the other problem's order of tables, so that sums round as the planner's did."""
    position = {table.name: i for i, table in enumerate(problem.tables)}
    place = np.array([position[table.name] for table in host.tables])
    order = np.argsort(place[host.modes.table[footprint.mode]], kind="stable")
    return Footprint(footprint.mode[order], footprint.width[order], footprint.target[order])


def in_space(problem: Problem, plan: Plan) -> bool:
    """Whether a plan lies in a problem's space: types, kernels, cache factors, widths and rules."""
    space, constraints = problem.space, problem.constraints
    tables = {table.name: table for table in problem.tables}
    least_width = dict(zip(tables, problem.least_width.tolist(), strict=True))
    for placement in plan.placements:
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
    return True


def fits(problem: Problem, footprint: Footprint) -> bool:
    """Whether device and host memory suffice."""
    device, host = memory_used(problem, footprint)
    return bool((device <= problem.capacity).all() and (host <= problem.host_capacity).all())
