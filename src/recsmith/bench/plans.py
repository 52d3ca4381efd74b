"""Plans of a task: every planner's, with its CPU seconds, or the reason why it has none.

A planner is named as on the command line, followed by @ and a cost model if it is to search under another one than the
run's: `auto`, `auto@analytic`, `auto@neural:mine.safetensors`. `torchrec` is TorchRec's own planner as it ships, and
`torchrec_best` the best of its plans over a list of settings (adapters/torchrec_settings.py), judged by the run's cost
model.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from recsmith._types import noun
from recsmith.adapters.installed import require_torchrec
from recsmith.adapters.torchrec_settings import fair_settings
from recsmith.bench.tasks import SPACE
from recsmith.bounds import lower_bound
from recsmith.costs import Evaluator, cost_model
from recsmith.costs.analytic import AnalyticCostModel
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, UsageError
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.planning import find_planner
from recsmith.plans import Placement
from recsmith.problems import Problem, build_problem, placements_of

TORCHREC, TORCHREC_BEST = "torchrec", "torchrec_best"
NEEDS_TORCHREC = "needs TorchRec"
DEFAULT_PLANNERS = (
    "auto", "neuroshard", "cost_greedy", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy", "random",
    TORCHREC, TORCHREC_BEST,
)  # fmt: skip

LEARNED_PLANNERS = (
    "auto", "dreamshard", "dreamshard?samples=16", "dreamshard?refine", "autoshard", "autoshard?samples=16",
    "neuroshard", "cost_greedy", "size_greedy",
    "dim_greedy", "lookup_greedy", "size_lookup_greedy", "random",
)  # fmt: skip
"""Planners of a run of learned planners. surco and rnn have to be named: they are in a package of their own."""


@noun
class Attempt:
    """A planner's result for a task: placements, or the reason why there are none.

    plan_s: CPU seconds of building the problem, compiling the cost model, and the search. model_s: seconds of the step
    by that cost model, for planners that search under one.
    """

    planner: str
    placements: tuple[Placement, ...] = ()
    error: str | None = None
    plan_s: float
    model_s: float | None = None


def default_model(hardware: str) -> str:
    """The shipped learned cost model of a hardware (neural:h200 for cuda:h200), or analytic if none ships."""
    name = "neural:" + hardware.partition("?")[0].removeprefix("cuda:").replace(":", "-")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its warnings are given where it is used
            cost_model(name)
    except UsageError:
        return AnalyticCostModel.name
    return name


def check_planners(planners: Sequence[str], model: str, task: PlacementTask) -> None:
    """Raise UsageError if a planner or its cost model is unknown, or the model does not price such tasks."""
    models: dict[str, None] = {}
    for planner in planners:
        name, own = _split(planner, model)
        if name not in (TORCHREC, TORCHREC_BEST):
            find_planner(name)
            models[own] = None
        elif "@" in planner:
            raise UsageError(f"'{planner}': TorchRec's planner has a cost model of its own; write {name}")
    for own in models:
        cost_model(own)  # warns if no device was measured for it
        _compiled(own, build_problem(task.workload, task.cluster, SPACE))


def attempt(planner: str, task: PlacementTask, model: str, seed: int) -> Attempt:
    """The planner's placements of a task. seed: of planners that draw at random."""
    name, own = _split(planner, model)
    if name in (TORCHREC, TORCHREC_BEST):
        try:
            make = _torchrec_planner(name == TORCHREC_BEST)
        except MissingExtra:
            return Attempt(planner=planner, error=NEEDS_TORCHREC, plan_s=0.0)
        return _timed(planner, lambda: (make(task, own), None))
    return _timed(planner, lambda: _placements(name, task, own, seed))


def _split(planner: str, model: str) -> tuple[str, str]:
    """(planner, cost model) of a planner's name."""
    name, _, own = planner.partition("@")
    return name, own or model


def _timed(planner: str, make: Callable[[], tuple[tuple[Placement, ...], float | None]]) -> Attempt:
    begun = time.process_time()
    try:
        (placements, model_s), error = make(), None
    except (NoPlanFound, Infeasible) as found:
        placements, model_s, error = (), None, str(found)
    spent = time.process_time() - begun
    return Attempt(planner=planner, placements=placements, error=error, plan_s=spent, model_s=model_s)


def bound_of(task: PlacementTask, model: str) -> float:
    """Lower bound in seconds on all plans of a task under a cost model; 0 if the model proves none."""
    return lower_bound(_compiled(model, build_problem(task.workload, task.cluster, SPACE))).bound.value_s or 0.0


def _placements(name: str, task: PlacementTask, model: str, seed: int) -> tuple[tuple[Placement, ...], float]:
    problem = build_problem(task.workload, task.cluster, SPACE)
    found = find_planner(name).plan(problem, _compiled(model, problem), seed=seed)
    if found.truncated:  # without a budget only Ctrl-C ends a search early, and then the run as well
        raise KeyboardInterrupt
    return placements_of(problem, found.footprint), found.total_s


def _compiled(model: str, problem: Problem) -> Evaluator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # learned models warn beyond their training data: the report says it once
        return cost_model(model).compile(problem)


def _torchrec_planner(best: bool) -> Callable[[PlacementTask, str], tuple[Placement, ...]]:
    """TorchRec's planner, with stock or the best settings, imported before its time is taken."""
    require_torchrec()
    if best:
        return _best_of_torchrec(import_module("recsmith.adapters.torchrec_planner").best_of_settings)
    plan = import_module("recsmith.adapters.torchrec_planner").plan_with_torchrec
    return lambda task, _: plan(task.workload, task.cluster, SPACE)


def _best_of_torchrec(best_of_settings: Callable[..., Any]) -> Callable[[PlacementTask, str], tuple[Placement, ...]]:
    def make(task: PlacementTask, model: str) -> tuple[Placement, ...]:
        evaluator = _compiled(model, build_problem(task.workload, task.cluster, SPACE))
        dims = [table.embedding_dim for table in task.workload.tables]
        return best_of_settings(evaluator, fair_settings(SPACE, dims, task.cluster.device.kind))[0]

    return make
