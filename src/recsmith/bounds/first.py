"""The first lower bound of a problem: seconds that no plan of its space can undercut, found in some hundredths of one.

It holds for problems of any size (group_branching.py). Large problems have no other bound; tightening.py raises it for
all others.

Legend: T tables, G fusion groups.
"""

from dataclasses import dataclass, replace

import numpy as np

from recsmith._types import Ints
from recsmith.bounds.constraint_bounds import confined_bound, counted_bound
from recsmith.bounds.group_branching import GroupBranching
from recsmith.bounds.linear_bounds import LinearBound, SelectionLimits, kept_for
from recsmith.bounds.plane_mixes import tightest_linear_bound
from recsmith.costs.protocol import Evaluator
from recsmith.plans import Bound
from recsmith.problems import Problem


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What is known of a problem before any search: its bound, and the limits under which good plans should be sought.

    linear: the linear bound of the cost that the bound rests on; None if the cost model gives none.
    promising: limits, the most promising first; the last of them allows every option.
    selections: fusion group of each table (T,) in the parts of the space with the lowest bounds, the lowest first.
    """

    bound: Bound
    linear: LinearBound | None
    promising: tuple[SelectionLimits, ...]
    selections: tuple[Ints, ...] = ()


def always() -> bool:
    """Always true: whether to continue, if nothing limits the time."""
    return True


def first_bound(evaluator: Evaluator) -> LowerBound:
    """The lower bound before it is tightened, in some hundredths of a second; large problems have no other."""
    return best_first(evaluator).known


@dataclass(frozen=True, slots=True)
class FirstBound:
    """The best bound over a model and its lifted versions: the one of `model`, which adds `lifts` seconds."""

    known: LowerBound
    model: Evaluator
    lifts: float


def best_first(evaluator: Evaluator) -> FirstBound:
    """The first bound, and the model that gives it; computed once for each evaluator."""
    return kept_for(evaluator, "first bound", lambda: _best_of_lifts(evaluator))


def _best_of_lifts(evaluator: Evaluator) -> FirstBound:
    """The best bound over the model itself and its lifted versions; no bound is tightened yet."""
    best, model, lifts = _bound_of_planes(evaluator), evaluator, 0.0
    value = best.bound.value_s
    for lift, lifted in evaluator.lifted if value is not None else ():
        found = _bound_of_planes(lifted)
        if (found.bound.value_s or 0.0) - lift * evaluator.groups > (value or 0.0) - lifts:
            best, model, lifts, value = found, lifted, lift * evaluator.groups, found.bound.value_s
    below = None if value is None else value - lifts
    linear = best.linear and replace(best.linear, opening=best.linear.opening if model is evaluator else 0.0)
    everything = SelectionLimits(limit=value or np.inf)
    known = LowerBound(replace(best.bound, value_s=below), linear, (*best.promising, everything))
    return FirstBound(known, model, lifts)


def _bound_of_planes(evaluator: Evaluator) -> LowerBound:
    """The bound from the planes of a model, not yet tightened, and its promising limits except the last."""
    problem = evaluator.problem
    if not evaluator.planes:
        none = Bound(value_s=None, kind="none: the cost model is not convex", space=describe_space(problem))
        return LowerBound(none, None, ())
    linear = tightest_linear_bound(evaluator)
    branching = GroupBranching(evaluator, linear)
    value, promising = branching.solve()
    constrained = max(confined_bound(evaluator, linear), counted_bound(evaluator, linear))
    value = value if value is None else max(value, constrained)
    kind = "additive: mean load, largest piece, memory"
    if not evaluator.additive:
        kind = "convex: planes below the cost, fusion groups, mean load, largest piece, memory"
    return LowerBound(
        Bound(value_s=value, kind=kind, space=describe_space(problem)), branching.linear, tuple(promising)
    )


def describe_space(problem: Problem) -> str:
    """The space for which a bound holds, as a sentence."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    given = problem.constraints
    lists = (
        (given.rules, "table rules"),
        (given.together, "together"),
        (given.apart, "apart"),
        (given.per_rank, "per rank"),
    )
    rules = "".join(f"; {len(some)} {what}" for some, what in lists if some)
    return f"{problem.planned_space.describe()}; memory {given.memory}{exact}{rules}"
