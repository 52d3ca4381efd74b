"""Planning: from a list of tables and a cluster to a plan, the main function of the package."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from recsmith.planners import OnImprove, Planner, Solution
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

PROOF_SHARE = 0.5  # share of a time limit for a better bound, if one is requested


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
    """Find a sharding plan for a workload on a cluster, with its cost, a proven bound, and the gap between them.

    Args:
        workload: a noun, a name such as 'dlrm-v2', or a path.
        cluster: a noun, a name such as 'h100:8x12', or a path.
        planner: a name, or an object of your own (docs/extending.md).
        cost_model: a name, or an object of your own; None for the default one.
        seed: for planners that draw random numbers.
        iterations: limit of the search that gives reproducible results.
        time_limit_s: limit of the search in seconds; the result is marked as truncated if it is reached.
        constraints: a noun or a path.
        space: the placements to choose from; None for all types and widths, with tables in device memory.
        start: a plan, or its path, that the result is never worse than.
        on_improve: called with the seconds of each better plan; returning True cancels the search.
        prove: also search for a better bound, for half of time_limit_s, or about a minute.
        on_bound: called now and then during the proof with the seconds of the plan and of the bound.
        on_proof: called with a sentence as soon as it is proved that no plan exists, before a change that helps is
            searched for (2 CPU seconds, or the rest of time_limit_s).

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
    """`plan`, with the search options in one noun. on_problem: called with each problem before it is searched."""
    asked = _Asked(options, planner, start, prove, on_improve, on_bound, on_proof, on_problem)
    return asked.plan(load_workload(workload), load_cluster(cluster), constraints)


@dataclass(frozen=True)
class _Asked:
    """The arguments of a search except tables, devices and constraints. begun: by time.perf_counter."""

    options: SearchOptions
    planner: str | Planner
    start: Plan | Source | None
    prove: bool
    on_improve: OnImprove | None
    on_bound: OnBound | None
    on_proof: Callable[[str], object] | None
    on_problem: Callable[[Evaluator], object] | None
    begun: float = field(default_factory=time.perf_counter)

    def one_of(self, searches: int) -> "_Asked":
        """One of several searches that share the time limit; it begins now."""
        limit_s = self.options.time_limit_s
        shared = replace(self.options, time_limit_s=limit_s and limit_s / searches)
        return replace(self, options=shared, begun=time.perf_counter())

    def plan(self, workload: Workload, cluster: Cluster, constraints: Constraints | Source | None) -> Result:
        """The best plan; if a switch is open (index deduplication or stashing), the best over all searches."""
        limits = Constraints() if constraints is None else problems.load_constraints(constraints)
        if workload.index_dedup == "auto":
            return deduplicated_where_it_pays(
                workload, lambda decided: self.one_of(len(DEDUP_CHOICES)).plan(decided, cluster, limits)
            )
        if limits.stash is not None and limits.stash.dense is None:
            return self._stashed(workload, cluster, limits)
        return self._searched(workload, cluster, limits)

    def _stashed(self, workload: Workload, cluster: Cluster, limits: Constraints) -> Result:
        """The best of plans for several reserves."""

        def beside(wide: Space) -> Result:
            one = self.one_of(MOST_SEARCHES)
            alone = replace(one, options=replace(one.options, space=wide), prove=False, on_improve=None, on_bound=None,
                            on_proof=None, on_problem=None)  # fmt: skip
            return alone.plan(workload, cluster, replace(limits, stash=None))

        return stashed_where_it_pays(
            workload, cluster, limits, lambda there, kept: self.one_of(MOST_SEARCHES).plan(workload, there, kept),
            beside, self.options.space or Space(),
        )  # fmt: skip

    def _searched(self, workload: Workload, cluster: Cluster, limits: Constraints) -> Result:
        """The plan of a single search, with its bound."""
        model, searcher = find_cost_model(self.options.cost_model), find_planner(self.planner)
        question = Question(workload, cluster, self.options.space)
        advice = AdviceBudget(self.begun + (self.options.time_limit_s or inf), self.on_proof)
        try:
            evaluator = self._compiled(question, limits, model)
            check_feasible(evaluator, model, advice)
        except (NoChoiceLeft, Infeasible) as error:
            raise contradiction(question, limits, error) from None
        problem = evaluator.problem
        try:
            solution = self._solution(evaluator, searcher)
        except Infeasible as error:
            helps = what_helps(problem, model, advice=advice, proof=str(error))
            raise contradiction(question, limits, Infeasible(f"{error} {helps}")) from None
        except NoPlanFound as error:
            solution = _constrained(question, problem, evaluator, searcher.name, error)
        if searcher.name not in PLANNERS:
            check_solution(problem, solution, searcher.name)
        made = make_plan(
            evaluator, solution.footprint, planner=searcher.name, cost_model=model.name,
            bound=self._bound(evaluator, solution),
        )  # fmt: skip
        _check_kept(problem, made)
        return Result(
            plan=made, elapsed_s=time.perf_counter() - self.begun, iterations=solution.iterations,
            truncated=solution.truncated, members=solution.members, left_out=solution.left_out,
        )  # fmt: skip

    def _compiled(self, question: Question, limits: Constraints, model: CostModel) -> Evaluator:
        """The problem compiled by its cost model; NoChoiceLeft if constraints leave a table no placement."""
        evaluator = model.compile(problems.build_problem(question.workload, question.cluster, question.space, limits))
        if self.on_problem is not None:
            self.on_problem(evaluator)
        return evaluator

    def _solution(self, evaluator: Evaluator, searcher: Planner) -> Solution:
        """The planner's solution; with a proof, the planner gets only a part of the time limit."""
        problem, budget = evaluator.problem, self.options.budget
        if self.prove and budget.time_limit_s is not None:
            budget = replace(budget, time_limit_s=(1 - PROOF_SHARE) * budget.time_limit_s)
        return searcher.plan(
            problem, evaluator, seed=self.options.seed, budget=budget.less(time.perf_counter() - self.begun),
            start=None if self.start is None else _start_footprint(problem, load_plan(self.start)),
            on_improve=whole_steps(self.on_improve, problem.workload, problem.cluster),
        )  # fmt: skip

    def _bound(self, evaluator: Evaluator, solution: Solution) -> Bound | None:
        """The bound that the search proved, or a better one if requested; None to use that of the cost model."""
        if not self.prove or solution.bound is not None:
            return solution.bound
        limit_s = self.options.time_limit_s
        beside_s = sequence_seconds(evaluator.problem.workload, evaluator.problem.cluster)

        def in_time() -> bool:
            return limit_s is None or time.perf_counter() - self.begun < limit_s

        def hear(total_s: float, bound_s: float) -> None:
            if self.on_bound is not None:
                self.on_bound(total_s + beside_s, bound_s + beside_s)

        return prove_bound(evaluator, solution.total_s, in_time, hear)


def _constrained(
    question: Question, problem: Problem, evaluator: Evaluator, planner: str, error: NoPlanFound
) -> Solution:
    """Any plan that keeps the constraints, if a planner found none; the error if there is none either."""
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


def _check_kept(problem: Problem, made: Plan) -> None:
    """Raise NoPlanFound if the planner's plan breaks a constraint."""
    broken = problems.broken_constraint(problem.constraints, made.placements, problem.tables, problem.cluster)
    if broken:
        raise NoPlanFound(f"planner {made.planner} found only a plan that breaks a constraint: {broken}; use auto")


def check_solution(problem: Problem, solution: Solution, planner: str) -> None:
    """Raise UsageError, with the reason, if a user's own planner returned something that breaks the protocol."""
    try:
        problems.check_solves(problem, problems.placements_of(problem, solution.footprint))
    except (PlanMismatch, LookupError, ValueError) as error:
        why = f"{error}" if isinstance(error, PlanMismatch) else "it is no footprint of every table"
        raise UsageError(
            f"planner {planner} returned a placement that is no plan: {why}; recsmith.testing.PlannerContract checks it"
        ) from error


def _start_footprint(problem: Problem, start: Plan) -> Footprint:
    """The placed pieces of a starting plan; PlanMismatch if it does not solve this problem."""
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
