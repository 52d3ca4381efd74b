"""From a list of tables and a cluster to a plan: the verb that everything else serves."""

import time

from recsmith.bounds import lower_bound
from recsmith.bounds.lower_bound import prove as prove_bound
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import CostModel, Evaluator, price
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import Infeasible, PlanMismatch
from recsmith.planners.protocol import Budget, OnImprove
from recsmith.planning.feasibility import check_feasible, what_helps
from recsmith.planning.registry import find_planner
from recsmith.planning.result import Result
from recsmith.plans import Bound, Plan, check_placements, digest_of, sorted_by_name
from recsmith.problems import (
    Constraints,
    Footprint,
    Problem,
    Space,
    build_problem,
    constraints_to_raw,
    footprint_of,
    in_space,
    memory_used,
    placements_of,
)
from recsmith.workloads import Workload, load_workload


def plan(
    workload: Workload | str,
    cluster: Cluster | str,
    *,
    planner: str = "auto",
    cost_model: str | None = None,
    seed: int = 0,
    iterations: int | None = None,
    time_limit_s: float | None = None,
    constraints: Constraints | None = None,
    space: Space | None = None,
    start: Plan | None = None,
    on_improve: OnImprove | None = None,
    prove: bool = False,
) -> Result:
    """A sharding plan for a workload on a cluster, with its cost, a proven bound, and the gap between them.

    workload, cluster: nouns, names ('dlrm-v2', 'h100:8x12') or files. seed: of planners that draw at random.
    iterations, time_limit_s: how long to search; the first is reproducible, the second marks the result truncated.
    start: a plan that the result is never worse than. on_improve(seconds): hears of each better plan; True cancels.
    prove: look for a better bound as well, for what is left of time_limit_s, or about a minute.

    Raises:
        UsageError: a name, value or file breaks a rule.
        Infeasible: no plan exists, proved; the message names a change that was checked to work.
        NoPlanFound: the search found none; one may exist.
    """
    begun = time.perf_counter()
    workload = load_workload(workload) if isinstance(workload, str) else workload
    cluster = load_cluster(cluster) if isinstance(cluster, str) else cluster
    model, searcher = find_cost_model(cost_model), find_planner(planner)
    problem = build_problem(workload, cluster, space, constraints)
    evaluator = model.compile(problem)
    check_feasible(evaluator, model)
    try:
        solution = searcher.plan(
            problem,
            evaluator,
            seed=seed,
            budget=Budget(iterations=iterations, time_limit_s=time_limit_s),
            start=_start_footprint(problem, start) if start else None,
            on_improve=on_improve,
        )
    except Infeasible as error:
        raise Infeasible(f"{error} {what_helps(problem, model)}") from None
    bound = solution.bound
    if prove and bound is None:
        spent = (lambda: False) if time_limit_s is None else (lambda: time.perf_counter() - begun >= time_limit_s)
        bound = prove_bound(evaluator, solution.total_s, lambda: not spent())
    made = make_plan(evaluator, solution.footprint, searcher.name, model, bound)
    return Result(
        plan=made,
        elapsed_s=time.perf_counter() - begun,
        iterations=solution.iterations,
        truncated=solution.truncated,
        members=solution.members,
    )


def make_plan(
    evaluator: Evaluator, footprint: Footprint, planner: str, model: CostModel, bound: Bound | None = None
) -> Plan:
    """The Plan of placed pieces: placements by name, price, bound (the cost model's own for None), gap, digest."""
    problem = evaluator.problem
    cost, bound = price(evaluator, footprint), bound or lower_bound(evaluator).bound
    workload = sorted_by_name(problem.workload)
    placements = placements_of(problem, footprint)
    constraints = constraints_to_raw(problem.space, problem.constraints)
    return Plan(
        workload=workload,
        cluster=problem.cluster,
        constraints=constraints,
        placements=placements,
        planner=planner,
        cost_model=model.name,
        cost=cost,
        bound=bound,
        gap=bound.gap(cost.total_s),
        extrapolated=evaluator.extrapolated,
        digest=digest_of(workload, problem.cluster, constraints, placements),
    )


def _start_footprint(problem: Problem, start: Plan) -> Footprint:
    """Where the pieces of a starting plan stand; PlanMismatch where it does not solve this problem."""
    check_placements(start.placements, problem.workload, problem.cluster)
    if not in_space(problem, start):
        raise PlanMismatch(f"the starting plan lies outside of the space {problem.space.describe()} or its rules")
    footprint = footprint_of(problem, start.placements)
    device, host = memory_used(problem, footprint)
    if (device > problem.capacity).any() or (host > problem.host_capacity).any():
        raise PlanMismatch("the starting plan needs more memory than the cluster has; start from one that fits")
    return footprint
