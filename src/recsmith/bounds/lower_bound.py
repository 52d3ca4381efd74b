"""What no plan can undercut, and where good plans are: docs/bounds.md proves it.

First a bound for problems of any size (branching.py), then, for small ones, a tighter one (branching.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import finalize

import numpy as np

from recsmith.bounds.group_branching import ROUNDING, GroupBranching, needless_groups
from recsmith.bounds.linear_bounds import tightest_linear_bound
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.costs.protocol import Evaluator
from recsmith.plans import Bound
from recsmith.problems import Problem

REACH = 1.5  # times a first bound: how high the second looks for a better one
MOST_TABLES = 300  # of a problem for which the second bound is looked for
BOXES_WORK, MOST_BOXES_WORK = 400_000, 500_000_000  # numbers that it works on, about: for each pair of tables, at most
PROOF_WORK, PROOF_PART = 20_000_000_000, 100_000_000  # on request: at most, and between two looks at the time


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What is known of a problem before any search: the bound, and under which limits good plans are to be sought.

    linear: the linear bound of the cost that it rests on; None where the cost model gives none.
    promising: limits, the most promising first; the last of them allows everything.
    """

    bound: Bound
    linear: LinearBound | None
    promising: tuple[SelectionLimits, ...]


_KNOWN: dict[int, LowerBound] = {}  # by the id of an evaluator, for as long as it lives


def lower_bound(evaluator: Evaluator) -> LowerBound:
    """The bound of an evaluator over its problem's space; worked out once for each evaluator.

    Where the model can be lifted (see `Evaluator.lifted`), a bound B of the model lifted by L seconds bounds the model
    itself by B - G * L: a lift adds at most L to each rank for each of the G groups. The best of all lifts counts.
    """
    key = id(evaluator)
    if key not in _KNOWN:
        _KNOWN[key] = _lower_bound(evaluator)
        finalize(evaluator, _KNOWN.pop, key)
    return _KNOWN[key]


def _lower_bound(evaluator: Evaluator) -> LowerBound:
    best = _bound_of_planes(evaluator)
    for lift, lifted in evaluator.lifted if best.bound.value_s is not None else ():
        found = _bound_of_planes(lifted)
        below = (found.bound.value_s or 0.0) - lift * evaluator.groups
        if below > (best.bound.value_s or 0.0):
            linear = found.linear and replace(found.linear, opening=0.0)
            best = LowerBound(replace(found.bound, value_s=below), linear, found.promising)
    return best


def _bound_of_planes(evaluator: Evaluator) -> LowerBound:
    """The bound that rests on the planes of a model as they are."""
    problem = evaluator.problem
    if not evaluator.planes:
        none = Bound(value_s=None, kind="none: the cost model is not convex", space=describe_space(problem))
        return LowerBound(none, None, (SelectionLimits(),))
    linear = tightest_linear_bound(evaluator)
    branching = GroupBranching(evaluator, linear)
    value, promising = branching.solve()
    if value is not None and len(problem.tables) <= MOST_TABLES:
        value = _branched(evaluator, value, promising[0].price if promising else 0.0)
    kind = "additive: mean load, largest piece, memory"
    if not evaluator.additive:
        kind = "convex: planes below the cost, fusion groups, mean load, largest piece, memory"
    everything = SelectionLimits(limit=value or np.inf)
    return LowerBound(Bound(value_s=value, kind=kind, space=describe_space(problem)), linear, (*promising, everything))


def prove(evaluator: Evaluator, total_s: float, keep_on: Callable[[], bool] = lambda: True) -> Bound:
    """A bound that more work has gone into, of a problem for which a plan with `total_s` is known.

    keep_on: asked now and then whether to go on. Takes about a minute where the gap stays open.
    """
    known = lower_bound(evaluator).bound
    if known.value_s is None or known.value_s >= total_s or len(evaluator.problem.tables) > MOST_TABLES:
        return known
    branching = _phase_branching(evaluator, total_s, max(each.price for each in lower_bound(evaluator).promising))
    while branching.work < PROOF_WORK and branching.bound < total_s and not branching.done and keep_on():
        branching.solve(branching.work + PROOF_PART, total_s)
    return replace(known, value_s=max(known.value_s, min(branching.bound, total_s * (1 - ROUNDING))))


def _branched(evaluator: Evaluator, value: float, price: float) -> float:
    """The bound after branching over how high the slowest rank stands, where the problem is small enough."""
    branching = _phase_branching(evaluator, REACH * value, price)
    work = min(MOST_BOXES_WORK, BOXES_WORK * len(evaluator.problem.tables) ** 2)
    if branching.work <= work:
        branching.solve(work, REACH * value)
    return max(value, min(branching.bound, REACH * value))


def _phase_branching(evaluator: Evaluator, below: float, price: float) -> PhaseBranching:
    byte = price / evaluator.problem.cluster.world_size
    return PhaseBranching(evaluator, needless=needless_groups(evaluator), below=below, byte=byte)


def describe_space(problem: Problem) -> str:
    """The words of the space that a bound holds for."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    rules = f"; {len(problem.constraints.rules)} table rules" if problem.constraints.rules else ""
    return f"{problem.space.describe()}; memory {problem.constraints.memory}{exact}{rules}"
