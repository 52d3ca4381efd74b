"""Problems that are built once for equal questions, with their evaluators and the bounds that those keep."""

import sys
from functools import cache
from typing import Any

import pytest

import recsmith.problems
from recsmith.costs import CostModel, Evaluator
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


class BuiltOnce:
    """What builds a problem for `plan`, and what finds its cost model, each once for equal questions."""

    def __init__(self) -> None:
        find = PLANNING.find_cost_model
        self.problem = cache(recsmith.problems.build_problem)
        self.model = cache(lambda name: Shared(find(name)))

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Have `plan` share what equal questions ask, until the patch is undone."""
        patch.setattr(recsmith.problems, "build_problem", self.problem)
        patch.setattr(PLANNING, "find_cost_model", self.model)

    def use_for_laws(self, request: pytest.FixtureRequest) -> None:
        """The same for a law of planners, but for that of one seed, which asks problems that are built anew."""
        if request.function.__name__ != "test_one_seed_gives_one_plan":
            self.use(request.getfixturevalue("monkeypatch"))
