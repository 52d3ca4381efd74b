"""What no plan can undercut, and where good plans are: docs/bounds.md proves it.

First a bound for problems of any size (branching.py), then, for small ones, a tighter one (boxes.py).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from recsmith.costs._base import Evaluator, Outlook, Terms
from recsmith.costs.boxes import Boxes
from recsmith.costs.branching import ROUNDING, Branching, needless_groups
from recsmith.costs.floors import tightest_floor
from recsmith.plans import Bound
from recsmith.problems import Problem

REACH = 1.5  # times a first bound: how high the second looks for a better one
MOST_TABLES = 300  # of a problem for which the second bound is looked for
BOXES_WORK, MOST_BOXES_WORK = 400_000, 500_000_000  # numbers that it works on, about: for each pair of tables, at most
PROOF_WORK, PROOF_PART = 20_000_000_000, 100_000_000  # on request: at most, and between two looks at the time


def outlook(evaluator: Evaluator) -> Outlook:
    """The bound of an evaluator over its problem's space (see the module), and the menus met on the way."""
    problem = evaluator.problem
    if not evaluator.planes:
        return Outlook(Bound(value_s=None, kind="none: the cost model is not convex", space=describe_space(problem)),
                       None, (Terms(),))  # fmt: skip
    floor = tightest_floor(evaluator)
    branching = Branching(evaluator, floor)
    value, leads = branching.solve()
    if value is not None and len(problem.tables) <= MOST_TABLES:
        value = _boxed(evaluator, value, leads[0].price if leads else 0.0)
    kind = "additive: mean load, largest piece, memory"
    if not evaluator.additive:
        kind = "convex: planes below the cost, fusion groups, mean load, largest piece, memory"
    return Outlook(
        Bound(value_s=value, kind=kind, space=describe_space(problem)), floor, (*leads, Terms(limit=value or np.inf))
    )


def prove(evaluator: Evaluator, total_s: float, keep_on: Callable[[], bool] = lambda: True) -> Bound:
    """A bound that more work has gone into, of a problem for which a plan with `total_s` is known.

    keep_on: asked now and then whether to go on. Takes about a minute where the gap stays open.
    """
    known = evaluator.outlook.bound
    if known.value_s is None or known.value_s >= total_s or len(evaluator.problem.tables) > MOST_TABLES:
        return known
    boxes = _boxes(evaluator, total_s, max(lead.price for lead in evaluator.outlook.leads))
    while boxes.work < PROOF_WORK and boxes.bound < total_s and not boxes.done and keep_on():
        boxes.solve(boxes.work + PROOF_PART, total_s)
    return replace(known, value_s=max(known.value_s, min(boxes.bound, total_s * (1 - ROUNDING))))


def _boxed(evaluator: Evaluator, value: float, price: float) -> float:
    """The bound after branching over how high the slowest rank stands, where the problem is small enough."""
    boxes = _boxes(evaluator, REACH * value, price)
    work = min(MOST_BOXES_WORK, BOXES_WORK * len(evaluator.problem.tables) ** 2)
    if boxes.work <= work:
        boxes.solve(work, REACH * value)
    return max(value, min(boxes.bound, REACH * value))


def _boxes(evaluator: Evaluator, below: float, price: float) -> Boxes:
    byte = price / evaluator.problem.cluster.world_size
    return Boxes(evaluator, needless=needless_groups(evaluator), below=below, byte=byte)


def describe_space(problem: Problem) -> str:
    """The words of the space that a bound holds for."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    rules = f"; {len(problem.constraints.rules)} table rules" if problem.constraints.rules else ""
    return f"{problem.space.describe()}; memory {problem.constraints.memory}{exact}{rules}"
