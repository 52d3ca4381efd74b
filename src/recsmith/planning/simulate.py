"""Prices existing plans under a cost model, with the gap to the best plan of their space."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import cast

import numpy as np

from recsmith import problems
from recsmith.bounds import lower_bound
from recsmith.bounds.first import describe_space
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import CostModel, Evaluator
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs import price as price_footprint
from recsmith.costs.protocol import parts_of
from recsmith.costs.published import error_under
from recsmith.errors import UsageError
from recsmith.files import Source, source_text
from recsmith.planning.result import assemble_plan
from recsmith.plans import Bound, PlacedTables, Placement, Plan, PlanDiff, StepCost, check_placements, load_placed
from recsmith.plans import diff as diff_of_plans
from recsmith.plans.check import tables_by_rows
from recsmith.plans.running import load_placements, placements_for
from recsmith.problems import Constraints, Footprint, Problem, Space
from recsmith.workloads import Workload, load_workload

GIVEN = "given"  # planner name of plans whose placements the user gave
NOT_ASKED = "none: it was not asked for"


def simulate(plan: Plan | Source, cost_model: str | CostModel | None = None, *, bound: bool = True) -> Plan:
    """The same plan priced by a cost model (its own by default): cost, bound of its space, and gap.

    The gap is None if the plan is outside the space that it names, or if there is no bound. A bound proved by a search
    is kept if the plan still has the stored cost.

    Args:
        plan: a Plan, or its file, which may be written by hand: workload, cluster and placements are enough.
        cost_model: a name, or an object of your own.
        bound: whether to compute a bound, which takes up to a second.

    Raises:
        UsageError: a name or file breaks a rule; PlanMismatch if placements cannot be run on the cluster.
    """
    found = load_placed(plan)
    if isinstance(found, PlacedTables):
        return _price_placed(found, cost_model, bound)
    return _priced_again(found, cost_model, bound)


def load_priced(plan: Plan | Source) -> Plan:
    """A plan with the price in its file, or with a new price if that is missing or the file was edited."""
    found = load_placed(plan)
    return found if isinstance(found, Plan) else _price_placed(found, None, True)


def diff(before: Plan | Source, after: Plan | Source) -> PlanDiff:
    """Compare two plans, or plan files: which tables move, how many bytes, and what the step costs.

    Raises:
        UsageError: a file cannot be read; CorruptFile or PlanMismatch if it contains no plan.
    """
    return diff_of_plans(load_priced(before), load_priced(after))


def _priced_again(plan: Plan, cost_model: str | CostModel | None, bound: bool) -> Plan:
    model = find_cost_model(cost_model or plan.cost_model)
    priced = _Priced.of(problems.problem_of(plan), plan.placements, model)
    found = priced.bound(bound)
    same = (plan.cost_model, plan.cost, plan.bound.space) == (model.name, priced.cost, found.space)
    if plan.bound.searched and same and (plan.bound.value_s or 0.0) >= (found.value_s or 0.0):
        found = plan.bound
    return replace(
        plan, cost_model=model.name, cost=priced.cost, bound=found,
        gap=found.gap(priced.cost.total_s) if priced.is_legal else None, extrapolated=priced.evaluator.extrapolated,
        error=error_under(priced.evaluator, model.name, plan.placements, parts_of(priced.cost)),
    )  # fmt: skip


def price(
    workload: Workload | Source,
    cluster: Cluster | Source,
    placements: Sequence[Placement] | Plan | Source,
    *,
    cost_model: str | CostModel | None = None,
    constraints: Constraints | Source | None = None,
    space: Space | None = None,
    bound: bool = True,
) -> Plan:
    """The plan of given placements, or of the job that runs today, with cost, bound and gap.

    Args:
        workload: a noun, a name or a path.
        cluster: a noun, a name or a path.
        placements: one for each table, in any order; a Plan; or a file: a plan, the text that TorchRec's planner logs,
            a ShardingPlan dumped by `json.dump(plan._serialize(), file)`, or the output of `print(plan)`.
        cost_model: a name, or an object of your own; None for the default one.
        constraints: a noun or a path.
        space: the space of the bound; None for the default space, extended by what the placements use.
        bound: whether to compute the bound, which takes up to a second.

    Raises:
        UsageError: a name, value or file breaks a rule; CorruptFile if the file cannot be read.
        PlanMismatch: a table has no placement, or one that cannot be run on the cluster.
    """
    workload, cluster = load_workload(workload), load_cluster(cluster)
    placements = _placements(placements, workload, cluster)
    limits = None if constraints is None else problems.load_constraints(constraints)
    placements = tuple(sorted(placements, key=lambda placement: placement.table))
    space = space or problems.space_holding(Space(), placements)
    problem = problems.build_problem(workload, cluster, space, limits, by_rows=tables_by_rows(placements))
    model = find_cost_model(cost_model)
    priced = _Priced.of(problem, placements, model)
    found = priced.bound(bound)
    return assemble_plan(
        problem, placements, priced.cost, planner=GIVEN, cost_model=model.name, bound=found,
        gap=found.gap(priced.cost.total_s) if priced.is_legal else None, evaluator=priced.evaluator,
    )  # fmt: skip


def _placements(
    placements: Sequence[Placement] | Plan | Source, workload: Workload, cluster: Cluster
) -> Sequence[Placement]:
    """The placements of a list, a Plan or a file; PlanMismatch if they cannot be run on the cluster."""
    if isinstance(placements, str | PathLike):
        placements = load_placements(source_text(placements, "placements"), workload, cluster)
    elif isinstance(placements, Plan):
        placements = placements_for(placements, GIVEN, workload, cluster)
    odd = next((each for each in cast(Sequence[object], placements) if not isinstance(each, Placement)), None)
    if odd is not None:
        raise UsageError(f"placements hold a {type(odd).__name__}; give a list of Placement, a Plan or a file")
    check_placements(placements, workload, cluster)
    return placements


def _price_placed(placed: PlacedTables, cost_model: str | CostModel | None, bound: bool) -> Plan:
    """The plan of a file without a price; without constraints, its space is that of `price`."""
    raw = placed.constraints
    space, constraints = (None, None) if raw is None else problems.constraints_from_raw(raw, "constraints of the plan")
    return price(
        placed.workload, placed.cluster, placed.placements, cost_model=cost_model or placed.cost_model,
        constraints=constraints, space=space, bound=bound,
    )  # fmt: skip


def price_plan(plan: Plan, cost_model: str | CostModel | None = None) -> StepCost:
    """The cost of a plan as in `simulate`, without the bound, which takes longer."""
    return _Priced.of(problems.problem_of(plan), plan.placements, find_cost_model(cost_model or plan.cost_model)).cost


@dataclass(frozen=True)
class _Priced:
    """The cost of placements. evaluator: of the problem's space. is_legal: whether they are in it and fit memory."""

    evaluator: Evaluator
    cost: StepCost
    is_legal: bool

    @classmethod
    def of(cls, problem: Problem, placements: tuple[Placement, ...], model: CostModel) -> "_Priced":
        """Price placements, even if they are outside the problem's space."""
        evaluator = model.compile(problem)
        wider = problems.problem_holding(problem, placements)
        pricing = evaluator if wider is problem else model.compile(wider)
        footprint = _in_order_of(problem, wider, problems.footprint_of(wider, placements))
        legal = problems.in_space(problem, placements) and problems.fits(wider, footprint)
        return cls(evaluator, price_footprint(pricing, footprint), legal)

    def bound(self, asked: bool) -> Bound:
        """The bound of the problem's space; an empty one if it is not requested."""
        if asked:
            return lower_bound(self.evaluator).bound
        return Bound(value_s=None, kind=NOT_ASKED, space=describe_space(self.evaluator.problem))


def _in_order_of(problem: Problem, wider: Problem, footprint: Footprint) -> Footprint:
    """A footprint in the wider problem, in the other problem's order of tables, so that sums round as the planner's."""
    position = {table.name: i for i, table in enumerate(problem.tables)}
    place = np.array([position[table.name] for table in wider.tables])
    order = np.argsort(place[wider.modes.table[footprint.mode]], kind="stable")
    return Footprint(footprint.mode[order], footprint.width[order], footprint.target[order])
