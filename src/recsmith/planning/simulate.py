"""What a plan costs under a cost model, and how far that is from the best of its space."""

from dataclasses import replace

import numpy as np

from recsmith.bounds import lower_bound
from recsmith.costs import CostModel, Evaluator
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.pricing import price
from recsmith.plans import Plan, StepCost
from recsmith.problems import Footprint, Problem, fits, footprint_of, in_space, problem_holding, problem_of


def simulate(plan: Plan, cost_model: str | None = None) -> Plan:
    """The same plan priced by a cost model (its own by default): cost, bound of its space, and gap.

    The gap is None where the plan lies outside the space it names, or where the model gives no bound. A bound that a
    search has proved is believed, for a plan that still costs what it says.
    """
    model = find_cost_model(cost_model or plan.cost_model)
    evaluator, wider, footprint = _compiled(plan, model)
    cost = price(wider, footprint)
    bound = lower_bound(evaluator).bound
    if plan.bound.searched and (plan.cost_model, plan.cost, plan.bound.space) == (model.name, cost, bound.space):
        bound = plan.bound
    legal = in_space(evaluator.problem, plan) and fits(wider.problem, footprint)
    return replace(
        plan, cost_model=model.name, cost=cost, bound=bound, gap=bound.gap(cost.total_s) if legal else None,
        extrapolated=evaluator.extrapolated,
    )  # fmt: skip


def price_plan(plan: Plan, cost_model: str | None = None) -> StepCost:
    """What `simulate` says a plan costs, without the bound that it takes longer to find."""
    _, wider, footprint = _compiled(plan, find_cost_model(cost_model or plan.cost_model))
    return price(wider, footprint)


def _compiled(plan: Plan, model: CostModel) -> tuple[Evaluator, Evaluator, Footprint]:
    """The evaluator of the plan's space, the one of a space that holds the plan, and the plan's footprint in that."""
    problem = problem_of(plan)
    evaluator = model.compile(problem)
    holding = problem_holding(problem, plan.placements)
    wider = evaluator if holding is problem else model.compile(holding)
    footprint = footprint_of(holding, plan.placements)
    return evaluator, wider, _in_order_of(problem, holding, footprint)


def _in_order_of(problem: Problem, wider: Problem, footprint: Footprint) -> Footprint:
    """A footprint in the wider problem, in the other problem's order of tables, so that sums round as the planner's."""
    position = {table.name: i for i, table in enumerate(problem.tables)}
    place = np.array([position[table.name] for table in wider.tables])
    order = np.argsort(place[wider.modes.table[footprint.mode]], kind="stable")
    return Footprint(footprint.mode[order], footprint.width[order], footprint.target[order])
