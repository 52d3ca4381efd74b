"""The public contract of planners: kept by the example and RecSmith's own, and it notices planners that break it."""

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.planners import Budget, Solution
from recsmith.planning import PLANNERS
from recsmith.testing import PlannerContract

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_planner.py"))


class TestTheExample(PlannerContract):
    planner = EXAMPLE["Restarts"]()


class TestAGreedy(PlannerContract):
    planner = PLANNERS["cost_greedy"]


class Broken:
    """The example's planner with a fault."""

    name = "broken"

    def __init__(self, fault: str) -> None:
        self.fault, self.calls = fault, 0

    def plan(self, problem: Any, evaluator: Any, **words: Any) -> Solution:
        self.calls += 1
        forgotten = {
            "start": {"start": None, "budget": Budget(iterations=1)},
            "deaf": {"on_improve": None},
            "budget": {"budget": None},
        }
        again = {"seed": self.calls} if self.fault == "seed" else forgotten.get(self.fault, {})
        found = EXAMPLE["Restarts"]().plan(problem, evaluator, **words | again)
        if self.fault == "heap":
            return replace(found, footprint=replace(found.footprint, target=0 * found.footprint.target))
        return replace(found, iterations=self.calls) if self.fault == "budget" else found


@pytest.mark.parametrize(
    ("fault", "law", "words"),
    [
        ("seed", "test_one_seed_gives_one_plan", "different plans for one seed"),
        ("start", "test_a_start_is_never_made_worse", "made its start worse"),
        ("deaf", "test_on_improve_hears_falling_totals", "must hear of the plan"),
        ("budget", "test_no_time_gives_a_plan_marked_as_cut_short", "ignores a time limit"),
        ("heap", "test_plans_are_complete_legal_and_within_memory", "needs more memory"),
        ("heap", "test_order_of_tables_does_not_matter", "is no plan: it needs more memory"),
    ],
)
def test_a_fault_is_noticed(fault: str, law: str, words: str):
    contract = PlannerContract()
    contract.planner = Broken(fault)
    with pytest.raises((AssertionError, UsageError), match=words):
        getattr(contract, law)()
