"""Problems that are built once for equal questions, with their evaluators and the bounds that those keep."""

import sys
from functools import cache
from typing import Any

import pytest

import recsmith.problems
from recsmith.costs import CostModel, Evaluator
from recsmith.planners import Planner
from recsmith.planners.protocol import Budget, Solution
from recsmith.planning import plan
from recsmith.problems import Problem

PLANNING = sys.modules[plan.__module__]


class Shared:
    """A cost model that compiles each problem once."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.compiled: dict[int, tuple[Problem, Evaluator]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def compile(self, problem: Problem) -> Evaluator:
        """The evaluator, with the bound that it keeps."""
        if id(problem) not in self.compiled:
            self.compiled[id(problem)] = problem, self.model.compile(problem)
        return self.compiled[id(problem)][1]


class Repeating:
    """A planner that plans each problem once, where nothing but seed and iterations is asked for."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.found: dict[Any, tuple[Evaluator, Solution]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.planner, name)

    def plan(self, problem: Problem, evaluator: Evaluator, *, seed: int, budget: Budget, **words: Any) -> Solution:
        """What was found before for this evaluator, or is found now."""
        if budget.time_limit_s is not None or any(word is not None for word in words.values()):
            return self.planner.plan(problem, evaluator, seed=seed, budget=budget, **words)
        asked = id(evaluator), seed, budget
        if asked not in self.found:
            found = self.planner.plan(problem, evaluator, seed=seed, budget=budget, **words)
            self.found[asked] = evaluator, found  # it is kept, so that its id stays its own
        return self.found[asked][1]


class BuiltOnce:
    """What builds a problem for `plan`, and what finds its cost model and planner, each once for equal questions."""

    def __init__(self) -> None:
        find = PLANNING.find_cost_model
        self.problem = cache(recsmith.problems.build_problem)
        self.model = cache(lambda name: Shared(find(name)))
        find_planner = PLANNING.find_planner
        self.planner = cache(lambda name: Repeating(find_planner(name)))

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have `plan` share what equal questions ask, until the patch is undone."""
        patch.setattr(recsmith.problems, "build_problem", self.problem)
        patch.setattr(PLANNING, "find_cost_model", self.model)

    def use_for_pages(self, patch: pytest.MonkeyPatch) -> None:
        """The same, and plans are found once: pages show those of one question again and again."""
        self.use(patch)
        patch.setattr(PLANNING, "find_planner", self.planner)

    def use_for_laws(self, request: pytest.FixtureRequest) -> None:
        """The same for a law of planners, but for that of one seed, which asks problems that are built anew."""
        if request.function.__name__ != "test_one_seed_gives_one_plan":
            self.use(request.getfixturevalue("monkeypatch"))
