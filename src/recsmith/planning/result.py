"""The options of a search, its result, and the one function that assembles a plan."""

from typing import TypedDict

from recsmith._types import noun
from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster
from recsmith.costs import CostModel, Evaluator, price
from recsmith.costs.protocol import parts_of
from recsmith.costs.published import error_under
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import LARGEST_SEED, check_rules, outside
from recsmith.planners import Budget, OnImprove
from recsmith.plans import Bound, Placement, Plan, StepCost, digest_of, sorted_by_name
from recsmith.problems import Footprint, Problem, Space, constraints_to_raw, footprint_of, placements_of
from recsmith.problems.stashing import with_stash
from recsmith.workloads import Workload


class SearchArguments(TypedDict, total=False):
    """The keyword arguments of `SearchOptions`, for functions that pass them on."""

    cost_model: str | CostModel | None
    seed: int
    iterations: int | None
    time_limit_s: float | None
    space: Space | None


@noun
class SearchOptions:
    """The options of a search, and the space that it searches.

    cost_model: a name, `neural:<name or file>`, or an object of your own; None for the default one.
    seed: for planners that draw random numbers.
    iterations, time_limit_s: limits of the search; the first is reproducible, the second marks the result truncated.
    space: the types, widths and kernels to choose from; None for all types and widths, with tables in device memory.
    """

    cost_model: str | CostModel | None = None
    seed: int = 0
    iterations: int | None = None
    time_limit_s: float | None = None
    space: Space | None = None

    def __post_init__(self) -> None:
        """Check the seed."""
        check_rules(outside("seed", self.seed, 0, LARGEST_SEED))

    @property
    def budget(self) -> Budget:
        """The limits of a planner's search; UsageError if they leave no time."""
        return Budget(iterations=self.iterations, time_limit_s=self.time_limit_s)


@noun
class Result:
    """A plan with its search time and iterations, and whether a limit cut the search short.

    members: for a search made of several parts, the parts that finished; the plan is no worse than any of theirs.
    left_out: sentences for a report: what the search would also have done with an extra that is not installed or with
        the compiled module, and a shorter step outside the requested options.
    """

    plan: Plan
    elapsed_s: float
    iterations: int
    truncated: bool = False
    members: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def whole_steps(on_improve: OnImprove | None, workload: Workload, cluster: Cluster) -> OnImprove | None:
    """Wrap `on_improve` so that it gets seconds of whole steps, with those that any plan takes (StepCost.step_s)."""
    beside_s = sequence_seconds(workload, cluster)

    def hear(total_s: float) -> bool | None:
        return None if on_improve is None else on_improve(total_s + beside_s)

    return on_improve and hear


def assemble_plan(
    problem: Problem,
    placements: tuple[Placement, ...],
    cost: StepCost,
    *,
    planner: str,
    cost_model: str,
    bound: Bound,
    gap: float | None,
    evaluator: Evaluator,
) -> Plan:
    """The Plan of placements priced by an evaluator: tables by name, the problem's space and rules, error, digest."""
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
        extrapolated=evaluator.extrapolated,
        error=error_under(evaluator, cost_model, placements, parts_of(cost)),
        digest=digest_of(workload, problem.cluster, constraints, placements),
    )


def make_plan(
    evaluator: Evaluator, footprint: Footprint, *, planner: str, cost_model: str, bound: Bound | None = None
) -> Plan:
    """The Plan of placed pieces, priced by an evaluator; with the cost model's bound if the search proved none."""
    problem, bound = evaluator.problem, bound or lower_bound(evaluator).bound
    placements = placements_of(problem, footprint)
    if problem.legality.pinned.any():
        footprint = footprint_of(problem, placements)  # priced in the order in which readers of the plan price it
    cost = price(evaluator, footprint)
    placements = with_stash(problem, placements, footprint)
    return assemble_plan(
        problem, placements, cost, planner=planner, cost_model=cost_model,
        bound=bound, gap=bound.gap(cost.total_s), evaluator=evaluator,
    )  # fmt: skip
