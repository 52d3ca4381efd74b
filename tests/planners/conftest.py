"""Assertions of the shared contract explain themselves; problems of its cases are built once."""

import sys
from functools import cache
from typing import Any

import pytest

import recsmith.problems
from recsmith.costs import CostModel, Evaluator
from recsmith.planning import plan
from recsmith.problems import Problem

pytest.register_assert_rewrite("recsmith.testing")


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


PLANNING = sys.modules[plan.__module__]


@pytest.fixture(scope="module")
def built_once() -> dict[str, Any]:
    """What builds a problem, and what finds a cost model by its name, each once for equal questions."""
    find = PLANNING.find_cost_model
    return {"problem": cache(recsmith.problems.build_problem), "model": cache(lambda name: Shared(find(name)))}


@pytest.fixture
def shared_problems(built_once: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal questions share their problem, evaluator and bound, whichever planner is asked and however often."""
    monkeypatch.setattr(recsmith.problems, "build_problem", built_once["problem"])
    monkeypatch.setattr(PLANNING, "find_cost_model", built_once["model"])
