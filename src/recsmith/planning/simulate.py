"""What a plan costs under a cost model, and how far that is from the best of its space."""

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

GIVEN = "given"  # the planner of plans whose placements the user gave
NOT_ASKED = "none: it was not asked for"


def simulate(plan: Plan | Source, cost_model: str | CostModel | None = None, *, bound: bool = True) -> Plan:
    """The same plan priced by a cost model (its own by default): cost, bound of its space, and gap.

    plan: a Plan, or its file, which may be written by hand: workload, cluster and placements are enough.
    cost_model: a name, or an object of your own. bound: whether to look for a bound, which takes up to a second.

    The gap is None where the plan lies outside the space it names, or where there is no bound. A bound that a
    search has proved is believed, for a plan that still costs what it says.

    Raises:
        UsageError: a name or file breaks a rule; PlanMismatch where placements cannot be run on the cluster.
    """
    found = load_placed(plan)
    if isinstance(found, PlacedTables):
        return _price_placed(found, cost_model, bound)
    return _priced_again(found, cost_model, bound)


def load_priced(plan: Plan | Source) -> Plan:
    """A plan with the price that its file holds, or a new one where that is missing or of placements before an edit."""
    found = load_placed(plan)
    return found if isinstance(found, Plan) else _price_placed(found, None, True)


def diff(before: Plan | Source, after: Plan | Source) -> PlanDiff:
    """What changed between two plans, or files of plans: which tables move, how many bytes, and what the step costs.

    Raises:
        UsageError: a file cannot be read; CorruptFile or PlanMismatch where it holds no plan.
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
    """The plan of placements of your own, or of the job that runs today, with cost, bound and gap.

    placements: one for each table, in any order; a Plan; or a file: a plan, the text that TorchRec's planner logs, a
    ShardingPlan dumped by `json.dump(plan._serialize(), file)`, or what `print(plan)` writes. space: what the bound is
    about; by default the space that is searched by default, and what the placements use besides. bound: whether to look
    for it, which takes up to a second.

    Raises:
        UsageError: a name, value or file breaks a rule; CorruptFile where the file cannot be read.
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
    """Placements of a list, a Plan or a file that can be run on the cluster; PlanMismatch where they cannot."""
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
    """What `simulate` says a plan costs, without the bound that it takes longer to find."""
    return _Priced.of(problems.problem_of(plan), plan.placements, find_cost_model(cost_model or plan.cost_model)).cost


@dataclass(frozen=True)
class _Priced:
    """What placements cost. evaluator: of the problem's space. is_legal: whether they lie in it and fit the memory."""

    evaluator: Evaluator
    cost: StepCost
    is_legal: bool

    @classmethod
    def of(cls, problem: Problem, placements: tuple[Placement, ...], model: CostModel) -> "_Priced":
        """Price placements, those outside of the problem's space too."""
        evaluator = model.compile(problem)
        wider = problems.problem_holding(problem, placements)
        pricing = evaluator if wider is problem else model.compile(wider)
        footprint = _in_order_of(problem, wider, problems.footprint_of(wider, placements))
        legal = problems.in_space(problem, placements) and problems.fits(wider, footprint)
        return cls(evaluator, price_footprint(pricing, footprint), legal)

    def bound(self, asked: bool) -> Bound:
        """The bound of the problem's space; one that says nothing where it is not asked for."""
        if asked:
            return lower_bound(self.evaluator).bound
        return Bound(value_s=None, kind=NOT_ASKED, space=describe_space(self.evaluator.problem))


def _in_order_of(problem: Problem, wider: Problem, footprint: Footprint) -> Footprint:
    """A footprint in the wider problem, in the other problem's order of tables, so that sums round as the planner's."""
    position = {table.name: i for i, table in enumerate(problem.tables)}
    place = np.array([position[table.name] for table in wider.tables])
    order = np.argsort(place[wider.modes.table[footprint.mode]], kind="stable")
    return Footprint(footprint.mode[order], footprint.width[order], footprint.target[order])
