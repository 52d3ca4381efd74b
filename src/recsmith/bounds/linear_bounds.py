"""Which planes below a convex cost model to price pieces by: those under which all tables together cost most.

Legend: T tables, G fusion groups, O options, k work terms, J planes.
"""

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.selection import LinearBound
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE

MOST_MIXES = 6
PLANE_STEPS = (1.0, 0.5, 0.25, 0.125)  # of the line search between planes
LEAST_RISE = 5e-4  # relative; the ascent ends where it gains no more than this


def tightest_linear_bound(evaluator: Evaluator) -> LinearBound:
    """For each group the mix of planes under which the cheapest picks of all tables cost most: a dual ascent.

    Any mix lies below the head, so any gives a valid bound; the best mix gives the tightest.
    """
    slopes = np.stack([plane.slopes.sum(axis=0) for plane in evaluator.planes])  # (J, k)
    opening = min(plane.opening for plane in evaluator.planes)
    mix = np.full((evaluator.groups, len(slopes)), 1 / len(slopes))
    if len(slopes) == 1:
        return LinearBound(mix @ slopes, opening)
    work, start = _option_terms(evaluator), evaluator.problem.options.start
    group = evaluator.group[evaluator.problem.options.mode]

    def cheapest(mixed: Floats) -> tuple[float, Ints]:
        return _cheapest(np.einsum("ok,ok->o", work, (mixed @ slopes)[group]), start)

    value, picks = cheapest(mix)
    for _ in range(MOST_MIXES):
        totals = np.zeros((evaluator.groups, work.shape[1]))
        np.add.at(totals, group[picks], work[picks])
        steepest = np.eye(len(slopes))[(totals @ slopes.T).argmax(axis=1)]  # (G, J)
        trials = [(1 - step) * mix + step * steepest for step in PLANE_STEPS]
        found = [(*cheapest(trial), trial) for trial in trials]
        best = max(found, key=lambda trial: trial[0])
        if best[0] <= value * (1 + LEAST_RISE):
            break
        value, picks, mix = best
    return LinearBound(mix @ slopes, opening)


def _option_terms(evaluator: Evaluator) -> Floats:
    """Terms of all pieces of each option over all covered ranks (O, k)."""
    problem = evaluator.problem
    terms = evaluator.terms(problem.pieces.mode, problem.pieces.width)
    piece, count = problem.options.piece, problem.options.count
    used = np.where(piece != NO_PIECE, count, 0) * problem.modes.coverage[problem.options.mode][:, None]
    return terms[piece[:, 0]] * used[:, :1] + terms[piece[:, 1]] * used[:, 1:]


def _cheapest(seconds: Floats, start: Ints) -> tuple[float, Ints]:
    """(seconds of all tables' cheapest options, these options (T,))."""
    least = np.minimum.reduceat(seconds, start[:-1])
    cheapest = np.flatnonzero(seconds == np.repeat(least, np.diff(start)))
    return float(least.sum()), cheapest[np.searchsorted(cheapest, start[:-1])]
