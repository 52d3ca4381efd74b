"""Plans that are found sooner: less is searched for them; their bounds are as valid, and further from the best plan."""

import sys
from collections.abc import Callable
from typing import Any

import recsmith.bounds
from recsmith.bounds import work
from recsmith.costs.neural import evaluator
from recsmith.planners.auto import improvement

BOUNDS = sys.modules[recsmith.bounds.lower_bound.__module__]
TIGHTENING = ("PHASE_WORK", "MOST_PHASE_WORK", "EQUAL_WORK", "LARGE_WORK")  # of bounds/work.py
FULL = {name: getattr(work, name) for name in TIGHTENING}
TIGHTENED, LIFTS = BOUNDS.tightened, evaluator._lifts
LESS = 0.05  # of the work; all of it is half of what planning a small problem takes
LAST_GAP = improvement.LAST_GAP
NEAR = 0.5  # relative gap at which planner `auto` stops: it takes a tenth of the CPU seconds for a small problem
Set = Callable[[Any, str, Any], None]


def tighten(share: float, set_: Set = setattr) -> None:
    """Have bounds tightened for a share of the work; with 0, the bound is the first one, as planner `auto` takes it.

    That one is then of the model as it is: its lifted versions are bounds of their own, each as dear as the first.
    """
    for name, numbers in FULL.items():
        set_(work, name, int(share * numbers))
    set_(BOUNDS, "tightened", TIGHTENED if share else lambda _evaluator, value, *_: (value, ()))
    set_(evaluator, "_lifts", LIFTS if share else lambda _head: [])


def search(until: float = LAST_GAP, set_: Set = setattr) -> None:
    """Have planner `auto` search until a plan is within a relative gap of its bound."""
    set_(improvement, "LAST_GAP", until)


def plan_quickly() -> None:
    """Where tests ask neither how good a plan is nor how tight its bound, the first plan that is near will do."""
    tighten(0)
    search(NEAR)
