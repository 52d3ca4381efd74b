"""The cost of one table of a plan: the step without it, and its best other placement while all other tables stay."""

from dataclasses import replace

from recsmith._types import noun
from recsmith.analyses.alternatives import Alternative, alternatives_to
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.plans import Plan
from recsmith.problems import Footprint, footprint_of, problem_holding, problem_of


@noun
class TableCost:
    """The cost of a table in the step. without_s: the step without the table. best: its cheapest other placement.

    best is None if no other placement of the plan's space finds room. A search that also moves other tables can find
    better plans.
    """

    table: str
    step_s: float
    without_s: float
    best: Alternative | None


def table_cost(plan: Plan, table: str) -> TableCost:
    """The cost of a table in a plan's step, under the plan's own cost model.

    Raises:
        UsageError: the plan has no such table.
    """
    placement = next((each for each in plan.placements if each.table == table), None)
    if placement is None:
        names = [each.table for each in plan.placements]
        raise UsageError(f"the plan has no table '{table[:60]}'{did_you_mean(table, names[:10_000])}")
    model, problem = find_cost_model(plan.cost_model), problem_of(plan)
    wider = problem_holding(problem, plan.placements)
    placed = PlacedCosts(model.compile(wider), footprint_of(wider, plan.placements))
    others = alternatives_to(placed, model, plan, problem, placement)
    return TableCost(
        table=table, step_s=placed.step_s, without_s=_without(placed, table),
        best=next((each for each in others if not each.current and each.total_s is not None), None),
    )  # fmt: skip


def _without(placed: PlacedCosts, name: str) -> float:
    """Seconds of the step with all pieces except those of a table."""
    index = [each.name for each in placed.problem.tables].index(name)
    kept, all_ = placed.table != index, placed.footprint
    rest = Footprint(all_.mode[kept], all_.width[kept], all_.target[kept])
    return replace(placed, footprint=rest).step_s if kept.any() else 0.0
