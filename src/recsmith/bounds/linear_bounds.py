"""Linear bounds below a convex cost model: the seconds of pieces by them, and what a relaxed problem may select.

The tightest bound mixes the model's supporting planes so that all tables together cost most.

Legend: N pieces, T tables, G fusion groups, O options, k work terms, J planes.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE, Problem

MOST_MIXES = 6  # steps of the ascent; trade-off: each costs a pass over all options for each of PLANE_STEPS
PLANE_STEPS = (1.0, 0.5, 0.25, 0.125)  # shares of the way to a single plane that the line search tries
LEAST_RISE = 5e-4  # relative; the ascent ends where a step gains no more than this
Value = TypeVar("Value")
ENTRY = "_kept_by_bounds"  # of the evaluator's own dictionary, where functools.cached_property keeps values too
ROUNDING = 1e-9  # relative, of seconds; sums of some 10,000 terms in double precision are exact to about 1e-12
BYTES_ROUNDING = 1e-13  # relative, of bytes times their price, which may exceed the seconds beside it by many decades


@dataclass(frozen=True, slots=True)
class LinearBound:
    """A linear function of the summed terms that lies nowhere above the cost of a fusion group on a rank.

    A group with summed terms S costs at least slopes[group] @ S + opening where it holds a piece. slopes (G, k):
    seconds, of all phases, per unit of a term. opening: seconds; the least that any group pays for holding a piece.
    """

    slopes: Floats
    opening: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionLimits:
    """The limits under which every table selects its cheapest option.

    limit: most seconds of a piece beyond the opening of its group; local: most seconds of one that does not span the
    world. price: seconds per byte of device memory. groups: fusion groups (G,) that may be selected; None for all.
    world_penalty: share of its seconds by which an option that spans the world counts as more expensive than it is.
    weight: most device bytes of a piece on a rank.
    """

    limit: float = np.inf
    price: float = 0.0
    groups: Bools | None = None
    local: float = np.inf
    world_penalty: float = 0.0
    weight: float = np.inf


def tightest_linear_bound(evaluator: Evaluator) -> LinearBound:
    """The mix of planes of each group under which the cheapest options of all tables together cost most.

    Any mix of planes lies below the head, so any gives a valid bound; the best mix gives the tightest. It is sought by
    dual ascent: each step moves every group's mix towards the plane that costs the selected options most.
    """
    return LinearBound(tightest_mix(evaluator) @ _slopes(evaluator), least_opening(evaluator))


def tightest_mix(evaluator: Evaluator) -> Floats:
    """The shares of the planes (G, J) in the tightest linear bound; not to be changed by its users."""
    slopes = _slopes(evaluator)
    mix = np.full((evaluator.groups, len(slopes)), 1 / len(slopes))
    return kept_for(evaluator, "tightest mix", lambda: _ascended(evaluator, slopes, mix) if len(slopes) > 1 else mix)


def mean_linear_bound(evaluator: Evaluator) -> LinearBound:
    """The mean of a cost model's planes, for every group."""
    slopes = np.mean(_slopes(evaluator), axis=0)
    return LinearBound(np.tile(slopes, (evaluator.groups, 1)), least_opening(evaluator))


def linear_seconds(evaluator: Evaluator, linear: LinearBound, modes: Ints, widths: Ints) -> tuple[Floats, Floats]:
    """Seconds (N,) of pieces on each rank that they cover: (by the linear bound, by the model alone on the rank).

    Both are beyond the opening of their group.
    """
    terms = evaluator.terms(modes, widths)
    alone = evaluator.head(terms).sum(axis=-1) - linear.opening
    if evaluator.additive:
        return alone, alone
    return np.einsum("nk,nk->n", terms, linear.slopes[evaluator.group[modes]]), alone


def _slopes(evaluator: Evaluator) -> Floats:
    """Slopes (J, k) of the planes, all phases together."""
    return np.stack([plane.slopes.sum(axis=0) for plane in evaluator.planes])


def least_opening(evaluator: Evaluator) -> float:
    """Seconds that a rank pays at least for holding a piece of a group, whichever plane counts."""
    return min(plane.opening for plane in evaluator.planes)


def _ascended(evaluator: Evaluator, slopes: Floats, mix: Floats) -> Floats:
    """A better mix (G, J) of planes with these slopes (J, k)."""
    work, start = option_terms(evaluator), evaluator.problem.options.start
    group = evaluator.group[evaluator.problem.options.mode]

    def cheapest(mixed: Floats) -> tuple[float, Ints]:
        return cheapest_options(np.einsum("ok,ok->o", work, (mixed @ slopes)[group]), start)

    value, selected = cheapest(mix)
    for _ in range(MOST_MIXES):
        totals = np.zeros((evaluator.groups, work.shape[1]))
        np.add.at(totals, group[selected], work[selected])
        steepest = np.eye(len(slopes))[(totals @ slopes.T).argmax(axis=1)]  # (G, J)
        trials = [(1 - step) * mix + step * steepest for step in PLANE_STEPS]
        found = [(*cheapest(trial), trial) for trial in trials]
        best = max(found, key=lambda trial: trial[0])
        if best[0] <= value * (1 + LEAST_RISE):
            break
        value, selected, mix = best
    return mix


def option_terms(evaluator: Evaluator) -> Floats:
    """Terms of all pieces of each option over all covered ranks (O, k)."""
    pieces = evaluator.problem.pieces
    return option_sums(evaluator.problem, evaluator.terms(pieces.mode, pieces.width))


def option_sums(problem: Problem, terms: Floats) -> Floats:
    """Sums (O, k) over all pieces of each option, on all covered ranks, of something of pieces (P, k)."""
    piece, count = problem.options.piece, problem.options.count
    used = np.where(piece != NO_PIECE, count, 0) * problem.modes.coverage[problem.options.mode][:, None]
    total = terms[piece[:, 0]] * used[:, :1]
    for pair in range(1, piece.shape[1]):
        total += terms[piece[:, pair]] * used[:, pair : pair + 1]
    return total


def cheapest_options(seconds: Floats, start: Ints) -> tuple[float, Ints]:
    """(seconds of all tables' cheapest options, these options (T,)) from seconds of each option (O,)."""
    least = np.minimum.reduceat(seconds, start[:-1])
    cheapest = np.flatnonzero(seconds == np.repeat(least, np.diff(start)))
    return float(least.sum()), cheapest[np.searchsorted(cheapest, start[:-1])]


def kept_for(evaluator: Evaluator, key: Hashable, make: Callable[[], Value]) -> Value:
    """The value of a key for an evaluator, made at the first call. An evaluator with slots alone keeps nothing."""
    values: dict[Hashable, Any] = getattr(evaluator, "__dict__", {}).setdefault(ENTRY, {})
    if key not in values:
        values[key] = make()
    return values[key]
