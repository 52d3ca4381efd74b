"""From a list of tables and a cluster to a plan: the verb that everything else serves."""

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from recsmith import problems
from recsmith.bounds import OnBound
from recsmith.bounds import prove as prove_bound
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import CostModel, Evaluator, step_seconds
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.files import Source
from recsmith.planners import Budget, OnImprove, Planner, Solution
from recsmith.planning.advice import AdviceBudget
from recsmith.planning.contradictions import Question, any_plan, contradiction
from recsmith.planning.feasibility import check_feasible, what_helps
from recsmith.planning.index_dedup import DEDUP_CHOICES, deduplicated_where_it_pays
from recsmith.planning.registry import PLANNERS, find_planner
from recsmith.planning.result import Result, SearchOptions, make_plan, whole_steps
from recsmith.planning.stashing import MOST_SEARCHES, stashed_where_it_pays
from recsmith.plans import Bound, Plan, check_placements, load_plan
from recsmith.problems import Constraints, Footprint, Problem, Space
from recsmith.problems.space import NoChoiceLeft
from recsmith.workloads import Workload, load_workload

PROOF_SHARE = 0.5  # of a time limit, for a better bound where one is asked for


def plan(
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    planner: str | Planner = "auto",
    cost_model: str | CostModel | None = None,
    seed: int = 0,
    iterations: int | None = None,
    time_limit_s: float | None = None,
    constraints: Constraints | Source | None = None,
    space: Space | None = None,
    start: Plan | Source | None = None,
    on_improve: OnImprove | None = None,
    prove: bool = False,
    on_bound: OnBound | None = None,
    on_proof: Callable[[str], object] | None = None,
) -> Result:
    """A sharding plan for a workload on a cluster, with its cost, a proven bound, and the gap between them.

    workload, cluster: nouns, names ('dlrm-v2', 'h100:8x12') or paths; constraints and start: nouns or paths.
    planner, cost_model: names, or objects of your own (docs/extending.md). seed: of planners that draw at random.
    iterations, time_limit_s: how long to search; the first is reproducible, the second marks the result truncated.
    start: a plan that the result is never worse than. on_improve(seconds): hears of each better plan; True cancels.
    prove: look for a better bound as well, for half of time_limit_s, or about a minute. on_bound(seconds of the plan,
    seconds of the bound): hears now and then how far that is. on_proof(sentence): hears that no plan exists as soon as
    that is proved, before a change that helps is looked for (2 CPU seconds, or what is left of time_limit_s).

    Raises:
        UsageError: a name, value or file breaks a rule.
        Infeasible: no plan exists, proved; the message names a change that was checked to work.
        NoPlanFound: the search found none; one may exist.
    """
    options = SearchOptions(
        cost_model=cost_model, seed=seed, iterations=iterations, time_limit_s=time_limit_s, space=space
    )
    return plan_with(
        options, workload, cluster, planner=planner, constraints=constraints, start=start, on_improve=on_improve,
        prove=prove, on_bound=on_bound, on_proof=on_proof,
    )  # fmt: skip


def plan_with(
    options: SearchOptions,
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    planner: str | Planner = "auto",
    constraints: Constraints | Source | None = None,
    start: Plan | Source | None = None,
    on_improve: OnImprove | None = None,
    prove: bool = False,
    on_bound: OnBound | None = None,
    on_proof: Callable[[str], object] | None = None,
    on_problem: Callable[[Evaluator], object] | None = None,
) -> Result:
    """`plan`, with the options of the search in one noun. on_problem: hears of each problem before it is searched."""
    begun = time.perf_counter()
    workload, cluster = load_workload(workload), load_cluster(cluster)
    if workload.index_dedup == "auto":
        half = replace(options, time_limit_s=options.time_limit_s and options.time_limit_s / len(DEDUP_CHOICES))
        return deduplicated_where_it_pays(
            workload,
            lambda one: plan_with(
                half, one, cluster, planner=planner, constraints=constraints, start=start, on_improve=on_improve,
                prove=prove, on_bound=on_bound, on_proof=on_proof, on_problem=on_problem,
            ),
        )  # fmt: skip
    model, searcher = find_cost_model(options.cost_model), find_planner(planner)
    limits = Constraints() if constraints is None else problems.load_constraints(constraints)
    if limits.stash is not None and limits.stash.dense is None:
        shared = replace(options, time_limit_s=options.time_limit_s and options.time_limit_s / MOST_SEARCHES)
        return stashed_where_it_pays(
            workload, cluster, limits,
            lambda there, kept: plan_with(
                shared, workload, there, planner=planner, constraints=kept, start=start, on_improve=on_improve,
                prove=prove, on_bound=on_bound, on_proof=on_proof, on_problem=on_problem,
            ),
            lambda wide: plan_with(
                replace(shared, space=wide), workload, cluster, planner=planner,
                constraints=replace(limits, stash=None), start=start,
            ),
            options.space or Space(),
        )  # fmt: skip
    question = Question(workload, cluster, options.space)
    advice = AdviceBudget(begun + (options.time_limit_s or inf), on_proof)
    try:
        problem = problems.build_problem(workload, cluster, options.space, limits)
        evaluator = model.compile(problem)
        if on_problem is not None:
            on_problem(evaluator)
        check_feasible(evaluator, model, advice)
    except (NoChoiceLeft, Infeasible) as error:
        raise contradiction(question, limits, error) from None
    try:
        solution = searcher.plan(
            problem, evaluator, seed=options.seed, budget=_budget(options, begun, prove),
            start=None if start is None else _start_footprint(problem, load_plan(start)),
            on_improve=whole_steps(on_improve, workload, cluster),
        )  # fmt: skip
    except Infeasible as error:
        helps = what_helps(problem, model, advice=advice, proof=str(error))
        raise contradiction(question, limits, Infeasible(f"{error} {helps}")) from None
    except NoPlanFound as error:
        solution = _constrained(question, problem, evaluator, searcher.name, error)
    if searcher.name not in PLANNERS:
        check_solution(problem, solution, searcher.name)
    bound = solution.bound
    if prove and bound is None:
        bound = _proven(evaluator, solution, begun, options.time_limit_s, on_bound)
    made = make_plan(evaluator, solution.footprint, planner=searcher.name, cost_model=model.name, bound=bound)
    broken = problems.broken_constraint(problem.constraints, made.placements, problem.tables, cluster)
    if broken:
        raise NoPlanFound(f"planner {searcher.name} found only a plan that breaks a constraint: {broken}; use auto")
    return Result(
        plan=made,
        elapsed_s=time.perf_counter() - begun,
        iterations=solution.iterations,
        truncated=solution.truncated,
        members=solution.members,
        left_out=solution.left_out,
    )


def _constrained(
    question: Question, problem: Problem, evaluator: Evaluator, planner: str, error: NoPlanFound
) -> Solution:
    """Any plan that keeps the constraints, where a planner found none; the error where there is none either."""
    slots = problem.memory_model.widest_slot
    if not problem.legality.any:
        raise NoPlanFound(f"{error}. {slots}") if slots else error
    verdict = any_plan(problem)
    if verdict.plan is not None:
        note = f"{planner}: found no plan that keeps the constraints; a search that asks only for that found this one"
        total_s = step_seconds(evaluator, verdict.plan)
        return Solution(footprint=verdict.plan, total_s=total_s, iterations=1, left_out=(note,))
    if verdict.answer == "none":
        raise contradiction(question, problem.constraints, error)
    raise NoPlanFound(
        f"{error}; whether any plan keeps the constraints was not decided, because packing is hard"
    ) from None


def _budget(options: SearchOptions, begun: float, prove: bool) -> Budget:
    """What is left of the budget; a time limit is shared with the proof."""
    budget = options.budget
    if prove and budget.time_limit_s is not None:
        budget = replace(budget, time_limit_s=(1 - PROOF_SHARE) * budget.time_limit_s)
    return budget.less(time.perf_counter() - begun)


def _proven(
    evaluator: Evaluator, solution: Solution, begun: float, time_limit_s: float | None, on_bound: OnBound | None
) -> Bound:
    """A better bound, looked for until the time limit, or for about a minute."""

    def in_time() -> bool:
        return time_limit_s is None or time.perf_counter() - begun < time_limit_s

    beside_s = sequence_seconds(evaluator.problem.workload, evaluator.problem.cluster)

    def hear(total_s: float, bound_s: float) -> None:
        if on_bound is not None:
            on_bound(total_s + beside_s, bound_s + beside_s)

    return prove_bound(evaluator, solution.total_s, in_time, hear)


def check_solution(problem: Problem, solution: Solution, planner: str) -> None:
    """Refuse what a planner of somebody's own returns against the protocol; UsageError says what is wrong."""
    try:
        problems.check_solves(problem, problems.placements_of(problem, solution.footprint))
    except (PlanMismatch, LookupError, ValueError) as error:
        why = f"{error}" if isinstance(error, PlanMismatch) else "it is no footprint of every table"
        raise UsageError(
            f"planner {planner} returned a placement that is no plan: {why}; recsmith.testing.PlannerContract checks it"
        ) from error


def _start_footprint(problem: Problem, start: Plan) -> Footprint:
    """Where the pieces of a starting plan are placed; PlanMismatch where it does not solve this problem."""
    check_placements(start.placements, problem.workload, problem.cluster)
    broken = problems.broken_constraint(problem.constraints, start.placements, problem.tables, problem.cluster)
    if broken:
        raise PlanMismatch(f"the starting plan breaks a constraint: {broken}")
    if not problems.in_space(problem, start.placements):
        raise PlanMismatch(
            f"the starting plan is none of those that may be made ({problem.planned_space.words}), or breaks a rule"
        )
    footprint = problems.footprint_of(problem, start.placements)
    if not problems.fits(problem, footprint):
        raise PlanMismatch("the starting plan needs more memory than the cluster has; start from one that fits")
    return footprint
