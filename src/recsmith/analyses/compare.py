"""Compares the plans of several planners, and the running plan, each priced by several cost models.

Planners search under one cost model; every judge (a cost model) then prices every plan. A plan that is best under one
cost model and poor under another is reported in one line, because no cost model equals the hardware. The problem, the
evaluators and their bounds are made once; every price is that of `simulate`.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, Unpack

from recsmith import problems
from recsmith._types import noun
from recsmith.analyses.sensitivity import Spread, spreads_of
from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import DEFAULT_COST_MODEL, CostModel, Evaluator, price
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.published import PublishedError, error_of
from recsmith.errors import NoPlanFound, UsageError
from recsmith.files import Source, source_text
from recsmith.planners.protocol import Budget, Planner
from recsmith.planning import SearchArguments, SearchOptions, assemble_plan
from recsmith.planning.feasibility import check_feasible
from recsmith.planning.plan import check_solution
from recsmith.planning.registry import PLANNERS, find_planner
from recsmith.plans import Bound, Placement, Plan, StepCost
from recsmith.plans.running import load_placements, placements_for
from recsmith.problems import Constraints, Footprint, Problem
from recsmith.units import format_gap
from recsmith.workloads import Workload, load_workload

TIE = 0.005  # plans that cost at most this fraction more than the best count as equally good
DEFAULT_PLANNERS = ("auto", "cost_greedy", "size_lookup_greedy", "size_greedy")
DEFAULT_JUDGES = (DEFAULT_COST_MODEL, "torchrec")
BASELINE = "baseline"
Named = TypeVar("Named", Planner, CostModel)


@noun
class Judgement:
    """The cost of one plan under one cost model.

    gap: cost / bound - 1, by which the plan may exceed the best of the space; None if the plan is outside of the space
    or does not fit. over_best: cost / cost of this judge's best fitting plan - 1; None if that one costs nothing.
    """

    cost_model: str
    total_s: float
    bound_s: float | None
    gap: float | None
    over_best: float | None


@noun
class PlannerRow:
    """The result of one planner, or of 'baseline': the judgements of its plan, or the error if it has none.

    digest: the plan's digest. search_s: seconds of the search, without the problem and bounds, which planners share.
    overfull: number of devices that need more memory than they have. fits: whether devices and hosts have room.
    sensitivity: the spread of the cost under the first judge, which is the cost model of the search.
    """

    name: str
    digest: str | None
    search_s: float | None
    truncated: bool
    error: str | None
    judgements: tuple[Judgement, ...]
    fits: bool
    overfull: int
    sensitivity: Spread | None


@noun
class Comparison:
    """Rows in order of their cost under the first judge, the cheapest first; rows without a plan are last.

    plans: plans by the names of their rows. verdict: which row is best, or how the judges disagree.
    """

    rows: tuple[PlannerRow, ...]
    judges: tuple[str, ...]
    verdict: str
    plans: dict[str, Plan]

    def row(self, name: str) -> PlannerRow:
        """The row of a planner, or of 'baseline'; KeyError if there is none."""
        return {row.name: row for row in self.rows}[name]


def ranked(rows: Sequence[PlannerRow]) -> tuple[PlannerRow, ...]:
    """The rows in order of cost, with `over_best` of each judgement filled in."""
    judged = [row for row in rows if row.judgements]
    best = [min(each.total_s for each in column) for column in zip(*(r.judgements for r in _room(rows)), strict=True)]
    compared = [replace(row, judgements=_over(row.judgements, best)) for row in judged]
    compared.sort(key=lambda row: row.judgements[0].total_s)
    return (*compared, *(row for row in rows if not row.judgements))


def _room(rows: Sequence[PlannerRow]) -> list[PlannerRow]:
    """The rows whose plans fit into memory; if none fits, all rows with a plan."""
    judged = [row for row in rows if row.judgements]
    return [row for row in judged if row.fits] or judged


def _over(judgements: Sequence[Judgement], best: Sequence[float]) -> tuple[Judgement, ...]:
    pairs = zip(judgements, best, strict=True)
    return tuple(replace(each, over_best=each.total_s / least - 1 if least else None) for each, least in pairs)


def verdict_on(rows: Sequence[PlannerRow], judges: Sequence[str]) -> str:
    """A line on which ranked row is best; if judges disagree, on the winner that loses most under another judge."""
    room = _room(rows)
    if not room[0].fits:
        return "no plan fits the memory of the devices and hosts"
    if len(room) == 1:
        return f"{room[0].name} has the only plan that fits"
    winners = [_winner(room, j) for j in range(len(judges))]
    over, j, k = max(
        (winner.judgements[k].over_best or 0.0, j, k) for j, winner in enumerate(winners) for k in range(len(judges))
    )
    if over > TIE:
        return (
            f"the judges disagree: {winners[j].name} is best under {judges[j]}, but under {judges[k]} it costs "
            f"{format_gap(over)} more than {winners[k].name}"
        )
    close = "" if over == 0 else f", or within {format_gap(over)} of it,"
    return f"{winners[0].name} is best{close} under {' and '.join(judges)}"


def ties(comparison: Comparison) -> tuple[str, ...]:
    """Names of fitting rows whose cost exceeds the best by less than the first judge's published error."""
    found, (_, *others) = published_error_of(comparison), _room(comparison.rows)
    over = {row.name: row.judgements[0].over_best or 0.0 for row in others if row.fits}
    return tuple(name for name, share in over.items() if found.ties(share))


def published_error_of(comparison: Comparison) -> PublishedError:
    """The published error of the first judge for the step of the best plan."""
    return error_of(comparison.plans[_room(comparison.rows)[0].name])


def _winner(rows: Sequence[PlannerRow], judge: int) -> PlannerRow:
    return min(rows, key=lambda row: row.judgements[judge].total_s)


def compare(
    workload: Workload | Source,
    cluster: Cluster | Source,
    *,
    planners: Sequence[str | Planner] = DEFAULT_PLANNERS,
    judges: Sequence[str | CostModel] = DEFAULT_JUDGES,
    baseline: Plan | Source | None = None,
    constraints: Constraints | Source | None = None,
    **search: Unpack[SearchArguments],
) -> Comparison:
    """Compares the plans of several planners, and of the running job, priced by several cost models.

    Args:
        workload: a Workload, a built-in name or a file.
        cluster: a Cluster, a name such as 'h100:8' or a file.
        planners: names or objects; each searches once under `cost_model`.
        judges: cost models that price every plan; the cost model of the search is always the first judge.
        baseline: a Plan, or a file: a plan, the text that TorchRec's planner logs, or a dumped ShardingPlan.
        constraints: Constraints, or a file of them.
        **search: cost_model, seed, iterations, time_limit_s and space, as in `plan`; limits are each planner's own.

    Raises:
        UsageError: a name, value or file breaks a rule; PlanMismatch if the baseline has other tables or ranks.
        Infeasible: no plan exists, proved.
        NoPlanFound: no planner found one, and there is no baseline.
    """
    workload, cluster = load_workload(workload), load_cluster(cluster)
    options = SearchOptions(**search)
    limits = None if constraints is None else problems.load_constraints(constraints)
    models = _by_name(find_cost_model(judge) for judge in (options.cost_model, *judges))
    searchers = _by_name(find_planner(planner) for planner in planners)
    if not searchers and baseline is None:
        raise UsageError("compare has nothing to compare; name a planner or a baseline")
    running = None if baseline is None else _placements(baseline, workload, cluster)
    panel = _Judges.of(problems.build_problem(workload, cluster, options.space, limits), models, options.seed)
    judged = [] if running is None else [panel.judge(BASELINE, running)]
    if searchers:
        check_feasible(panel.evaluators[0], models[0])
    judged += [_searched(panel, searcher, options.budget) for searcher in searchers]
    plans = {each.row.name: each.plan for each in judged if each.plan}
    if not plans:
        raise NoPlanFound("; ".join(f"{each.row.error}" for each in judged))
    rows, names = ranked(panel.with_spreads(judged)), tuple(model.name for model in models)
    return Comparison(rows=rows, judges=names, verdict=verdict_on(rows, names), plans=plans)


def _by_name(made: Iterable[Named]) -> list[Named]:
    """The first planner or cost model of each name, in order."""
    found: dict[str, Named] = {}
    for each in made:
        found.setdefault(each.name, each)
    return list(found.values())


def _placements(baseline: Plan | Source, workload: Workload, cluster: Cluster) -> tuple[Placement, ...]:
    if isinstance(baseline, Plan):
        return placements_for(baseline, BASELINE, workload, cluster)
    return load_placements(source_text(baseline, "a Plan"), workload, cluster)


class _Judged(NamedTuple):
    """A row with its plan, the problem that prices it and its placed pieces; the latter are None without a plan."""

    row: PlannerRow
    plan: Plan | None = None
    problem: Problem | None = None
    footprint: Footprint | None = None


def _searched(judges: "_Judges", searcher: Planner, budget: Budget) -> _Judged:
    """The row of a planner after its search; it holds an error if no plan was found."""
    begun = time.perf_counter()
    try:
        found = searcher.plan(judges.problem, judges.evaluators[0], seed=judges.seed, budget=budget)
    except NoPlanFound as error:
        return _Judged(_failed(searcher.name, time.perf_counter() - begun, str(error)))
    search_s = time.perf_counter() - begun
    if searcher.name not in PLANNERS:
        check_solution(judges.problem, found, searcher.name)
    judged = judges.judge(searcher.name, problems.placements_of(judges.problem, found.footprint))
    return judged._replace(row=replace(judged.row, search_s=search_s, truncated=found.truncated))


def _failed(name: str, search_s: float, error: str) -> PlannerRow:
    return PlannerRow(
        name=name, digest=None, search_s=search_s, truncated=False, error=error,
        judgements=(), fits=False, overfull=0, sensitivity=None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Judges:
    """Data that all rows share: the problem and the judges compiled for it; the cost model of the search is first."""

    problem: Problem
    models: Sequence[CostModel]
    evaluators: Sequence[Evaluator]
    bounds: Sequence[Bound]
    seed: int

    @classmethod
    def of(cls, problem: Problem, models: Sequence[CostModel], seed: int) -> "_Judges":
        """Compile the judges; their bounds take most of the time."""
        evaluators = [model.compile(problem) for model in models]
        return cls(problem, models, evaluators, [lower_bound(evaluator).bound for evaluator in evaluators], seed)

    def judge(self, name: str, placements: tuple[Placement, ...]) -> _Judged:
        """The row of placements, priced by every judge; `with_spreads` adds its sensitivity."""
        wider = problems.problem_holding(self.problem, placements)
        evaluators = self.evaluators if wider is self.problem else [model.compile(wider) for model in self.models]
        footprint = problems.footprint_of(wider, placements)
        costs = [price(evaluator, footprint) for evaluator in evaluators]
        plan, room = self._plan(name, placements, costs[0], evaluators[0]), problems.fits(wider, footprint)
        inside = room and problems.in_space(self.problem, placements)
        judgements = tuple(self._judgement(i, cost, inside) for i, cost in enumerate(costs))
        row = PlannerRow(
            name=name, digest=plan.digest, search_s=None, truncated=False, error=None, judgements=judgements,
            fits=room, overfull=len(costs[0].overfull), sensitivity=None,
        )  # fmt: skip
        return _Judged(row, replace(plan, gap=judgements[0].gap), wider, footprint)

    def with_spreads(self, judged: Sequence[_Judged]) -> list[PlannerRow]:
        """The rows with their sensitivity; plans of one problem are priced together, since they share most pieces."""
        together: dict[int, list[tuple[PlannerRow, Problem, Footprint]]] = {}
        for row, _, problem, footprint in judged:
            if problem is not None and footprint is not None:
                together.setdefault(id(problem), []).append((row, problem, footprint))
        found: dict[str, Spread] = {}
        for same in together.values():
            rows, (problem, *_), footprints = zip(*same, strict=True)
            spreads = spreads_of(self.models[0], problem, footprints, seed=self.seed)
            found |= zip((row.name for row in rows), spreads, strict=True)
        return [replace(each.row, sensitivity=found.get(each.row.name)) for each in judged]

    def _judgement(self, judge: int, cost: StepCost, inside: bool) -> Judgement:
        bound = self.bounds[judge]
        gap = bound.gap(cost.total_s) if inside else None
        return Judgement(
            cost_model=self.models[judge].name,
            total_s=cost.step_s,
            bound_s=bound.of_step(cost),
            gap=gap,
            over_best=None,
        )

    def _plan(self, name: str, placements: tuple[Placement, ...], cost: StepCost, evaluator: Evaluator) -> Plan:
        """The plan of placements under the first judge, without its gap."""
        return assemble_plan(
            self.problem, placements, cost, planner=name, cost_model=self.models[0].name, bound=self.bounds[0],
            gap=None, evaluator=evaluator,
        )  # fmt: skip
