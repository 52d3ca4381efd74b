"""The public contract of cost models: kept by the example and RecSmith's own, and it notices models that break it."""

import runpy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.costs import COST_MODELS, AdditiveEvaluator, Plane
from recsmith.testing import CostModelContract, sample_problems

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_planner.py"))


class TestTheExample(CostModelContract):
    cost_model = EXAMPLE["ReadBytes"]()


class TestAnalytic(CostModelContract):
    cost_model = COST_MODELS["analytic"]


class TestFitted(CostModelContract):
    cost_model = COST_MODELS["fitted"]


class TestTorchRec(CostModelContract):
    cost_model = COST_MODELS["torchrec"]


class TooHigh(AdditiveEvaluator):
    """Planes that lie above the loads."""

    @property
    def planes(self) -> tuple[Plane, ...]:
        return (Plane(np.full((1, 4), 1.5), 0.0),)


class TooFast(AdditiveEvaluator):
    """Loads that are not those of head."""

    def loads(self, sums: Any) -> Any:
        return super().loads(sums) * 0.9


class Neighbours(AdditiveEvaluator):
    """Terms that depend on the other pieces asked."""

    def terms(self, modes: Any, widths: Any) -> Any:
        return super().terms(modes, widths) * len(modes)


@dataclass
class Broken:
    kind: type[AdditiveEvaluator]
    name: str = "broken"

    def compile(self, problem: Any) -> AdditiveEvaluator:
        made = EXAMPLE["ReadBytes"]().compile(problem)
        return self.kind(made.problem, made.seconds)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (TooHigh, "test_planes_lie_below"),
        (TooHigh, "test_no_plan_costs_less_than_the_bound"),
        (TooFast, "test_loads_and_compute_say_what_head_says"),
        (Neighbours, "test_terms_are_of_each_piece_alone"),
    ],
)
def test_a_fault_is_noticed(kind: type[AdditiveEvaluator], law: str):
    contract = CostModelContract()
    contract.cost_model = Broken(kind)
    with pytest.raises(AssertionError):
        getattr(contract, law)()


def test_problems_are_of_many_kinds_and_the_same_every_time():
    problems = sample_problems()
    assert len({(len(each.tables), each.cluster.world_size, each.space.types) for each in problems}) == len(problems)
    assert sample_problems() is problems
    assert all(replace(each.workload) == each.workload for each in problems)
