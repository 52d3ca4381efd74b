"""Plans for the time of a whole training step: communication and lookups that other work hides cost nothing.

Planners add up lookups and collectives. How much of that a step shows depends on the dense part, which planners do not
see. So the search runs several times, each time with another weight of communication, and the plan with the shortest
predicted step is taken. One of the searches uses the cost model itself, so the predicted step is never longer than that
of its plan.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsmith._types import Floats, Ints, Source
from recsmith.costs import CostModel, Evaluator, Plane, StepRule
from recsmith.costs import cost_model as find_cost_model
from recsmith.planning import Result, plan
from recsmith.planning.simulate import simulate
from recsmith.plans import PARTS, Plan
from recsmith.prediction.machine import Machine, load_machine
from recsmith.prediction.models import load_model
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.predictions import predict_model
from recsmith.prediction.repricing import reprice
from recsmith.prediction.traces import is_capture, load_capture
from recsmith.problems import Problem

WEIGHTS = (1.0, 0.05, 0.25, 4.0)  # weights of communication relative to compute; the first one is the cost model itself
TYPES = ("table_wise", "column_wise")  # sharding types whose steps can be predicted
Predicted = Callable[[Plan], float]


@dataclass(frozen=True)
class WeighedEvaluator:
    """An evaluator whose collectives cost `comm` times as much; everything else is the model's.

    comm: above 0, since a weight of 0 would leave nothing to bound.
    """

    base: Evaluator
    comm: float
    problem: Problem
    group: Ints
    groups: int
    additive: bool
    extrapolated: dict[str, float]
    step_rule: StepRule
    bends: tuple[Plane, ...] = ()  # none: the bends of the model have no weights
    lifted: tuple[tuple[float, Evaluator], ...] = ()

    @property
    def shared(self) -> Floats:
        """The latencies of the model, with the weight."""
        return self.base.shared * self._factors

    @property
    def planes(self) -> tuple[Plane, ...]:
        """The planes of the model, lower if collectives weigh less: valid bounds, but not the tightest."""
        share = min(self.comm, 1.0)
        return tuple(Plane(plane.slopes * share, plane.opening * share) for plane in self.base.planes)

    @property
    def _factors(self) -> Floats:
        return np.array([self.comm if part.endswith("comm_s") else 1.0 for part in PARTS])

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """Work terms of pieces, which have no weight."""
        return self.base.terms(modes, widths)

    def head(self, sums: Floats) -> Floats:
        """The four parts of the cost, with the weight."""
        return self.base.head(sums) * self._factors

    def loads(self, sums: Floats) -> Floats:
        """Seconds of each phase, with the weight."""
        return self.step_rule.phase_seconds(self.head(sums))

    def compute(self, sums: Floats) -> Floats:
        """Seconds of kernels, which have no weight."""
        return self.base.compute(sums)


@dataclass(frozen=True)
class WeighedModel:
    """A cost model whose collectives cost `comm` times as much."""

    base: CostModel
    comm: float

    @property
    def name(self) -> str:
        """The model's name and the weight."""
        return f"{self.base.name}, communication x {self.comm:g}"

    def compile(self, problem: Problem) -> WeighedEvaluator:
        """The evaluator of the model, with the weight."""
        base = self.base.compile(problem)
        return WeighedEvaluator(
            base, self.comm, base.problem, base.group, base.groups, base.additive, base.extrapolated, base.step_rule
        )


@dataclass(frozen=True)
class StepPlan:
    """The plan with the shortest predicted step. steps: (weight, seconds) of each search, that of weight 1 first."""

    result: Result
    steps: tuple[tuple[float, float], ...]

    @property
    def step_s(self) -> float:
        """Predicted seconds of the step of the plan."""
        return min(seconds for _, seconds in self.steps)


def plan_for_step(predicted: Predicted, cost_model: str | CostModel | None = None, **options: Any) -> StepPlan:
    """The plan with the shortest predicted step among those that several searches find.

    predicted: returns the seconds of the step of a plan (`step_predictor`). options: as of `recsmith.plan`; a time
    limit is for all searches together.

    Raises:
        UsageError, Infeasible, NoPlanFound: as `recsmith.plan`, or the plans' steps cannot be predicted.
    """
    base = find_cost_model(cost_model)
    if options.get("time_limit_s") is not None:
        options["time_limit_s"] /= len(WEIGHTS)
    results: list[Result] = []
    steps: list[tuple[float, float]] = []
    for weight in WEIGHTS:
        result = plan(**options, cost_model=base if weight == 1.0 else WeighedModel(base, weight))
        if weight != 1.0:
            priced = simulate(replace(result.plan, cost_model=base.name, digest=""), base)
            result = replace(result, plan=replace(priced, planner=result.plan.planner))
        results.append(result)
        steps.append((weight, predicted(result.plan)))
    best = min(range(len(steps)), key=lambda place: steps[place][1])
    return StepPlan(results[best], tuple(steps))


def step_predictor(step: Source, machine: Machine | Source = "cpu") -> Predicted:
    """A function that predicts the step of plans, from a folder of `recsmith capture` or a file of a model's sizes.

    Raises:
        UsageError: the path is neither.
    """
    known = machine if isinstance(machine, Machine) else load_machine(str(machine))
    if is_capture(step):
        graph = load_capture(step).graph
        return lambda plan: predict_graph(reprice(graph, known, plan=plan)).step_s
    model = load_model(step)
    return lambda plan: predict_model(model, plan=plan, machine=known)[0][1].step_s
