"""Linear lower bounds on a convex cost model: seconds of pieces by such a bound, and limits on what tables select.

Any mix of the model's supporting planes gives a linear bound; plane_mixes.py finds the tightest.

Legend: N pieces, P pieces of the problem, T tables, G fusion groups, O options, k work terms, J planes.
"""

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE, Problem

Value = TypeVar("Value")
ENTRY = "_kept_by_bounds"  # key in the evaluator's own dictionary, where functools.cached_property keeps values too
ROUNDING = 1e-9  # relative error of seconds; sums of some 10,000 terms in double precision are exact to about 1e-12
BYTES_ROUNDING = 1e-13  # relative, of bytes times their price, which may be many decades above the seconds


@dataclass(frozen=True, slots=True)
class LinearBound:
    """A linear function of the summed terms that is nowhere above the cost of a fusion group on a rank.

    A group with summed terms S costs at least slopes[group] @ S + opening if it holds a piece. slopes (G, k): seconds,
    of all phases, per unit of a term. opening: seconds; the least that any group pays for holding a piece. mix (G, J):
    shares of the planes that make it up, if it is a mix.
    """

    slopes: Floats
    opening: float
    mix: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionLimits:
    """The limits under which every table selects its cheapest option.

    limit: most seconds of a piece beyond the opening of its group; local: most seconds of a piece that does not span
    the world. price: seconds per byte of device memory. groups: fusion groups (G,) that may be selected; None for all.
    world_penalty: share of its seconds that is added to an option that spans the world. weight: most device bytes of a
    piece on a rank.
    """

    limit: float = np.inf
    price: float = 0.0
    groups: Bools | None = None
    local: float = np.inf
    world_penalty: float = 0.0
    weight: float = np.inf


def mean_linear_bound(evaluator: Evaluator) -> LinearBound:
    """The mean of a cost model's planes, for every group; without planes a bound of zeros, which prices nothing."""
    if not evaluator.planes:
        return LinearBound(np.zeros((evaluator.groups, 1)), 0.0)
    slopes = np.mean(plane_slopes(evaluator), axis=0)
    return LinearBound(np.tile(slopes, (evaluator.groups, 1)), least_opening(evaluator))


class PieceTerms:
    """What pieces (N,) need on each rank that they cover, whatever linear bound prices it.

    terms (N, k): work terms. alone (N,): seconds by the model of each piece alone on a rank. group (N,): fusion groups.
    """

    def __init__(self, evaluator: Evaluator, modes: Ints, widths: Ints) -> None:
        self.terms, self.group = evaluator.terms(modes, widths), evaluator.group[modes]
        self.alone: Floats = evaluator.head(self.terms).sum(axis=-1)
        self.priced_alone = evaluator.additive or not evaluator.planes

    def of(self, pieces: Ints) -> "PieceTerms":
        """The work of some of the pieces."""
        other = copy(self)
        other.terms, other.group, other.alone = self.terms[pieces], self.group[pieces], self.alone[pieces]
        return other

    def seconds(self, linear: LinearBound) -> tuple[Floats, Floats]:
        """Seconds (N,) of pieces beyond the opening of their group: (by a linear bound, by the model alone).

        The seconds by the model alone are used for both if costs are additive, or if a model has no planes.
        """
        alone = self.alone - linear.opening
        if self.priced_alone:
            return alone, alone
        return np.einsum("nk,nk->n", self.terms, linear.slopes[self.group]), alone


def piece_work(evaluator: Evaluator) -> PieceTerms:
    """What the pieces of a problem (P,) need; computed once for each evaluator, and not to be changed."""
    pieces = evaluator.problem.pieces
    return kept_for(evaluator, "piece work", lambda: PieceTerms(evaluator, pieces.mode, pieces.width))


def plane_slopes(evaluator: Evaluator) -> Floats:
    """Slopes (J, k) of the planes, summed over all phases."""
    return np.stack([plane.slopes.sum(axis=0) for plane in evaluator.planes])


def least_opening(evaluator: Evaluator) -> float:
    """The least seconds, over all planes, that a rank pays for holding a piece of a group."""
    return min(plane.opening for plane in evaluator.planes)


def option_sums(problem: Problem, terms: Floats) -> Floats:
    """Sums (O, k) of the values of pieces (P, k) over all pieces of each option, on all covered ranks."""
    piece, count = problem.options.piece, problem.options.count
    used = np.where(piece != NO_PIECE, count, 0) * problem.modes.coverage[problem.options.mode][:, None]
    total = terms[piece[:, 0]] * used[:, :1]
    for pair in range(1, piece.shape[1]):
        total += terms[piece[:, pair]] * used[:, pair : pair + 1]
    return total


def cheapest_options(seconds: Floats, start: Ints) -> tuple[Floats, Ints]:
    """(seconds of each table's cheapest option, the first option with this cost), both (T,), from seconds (O,)."""
    least = np.minimum.reduceat(seconds, start[:-1])
    cheapest = np.flatnonzero(seconds == np.repeat(least, np.diff(start)))
    return least, cheapest[np.searchsorted(cheapest, start[:-1])]


def kept_for(evaluator: Evaluator, key: Hashable, make: Callable[[], Value]) -> Value:
    """The value of a key for an evaluator, made at the first call; without a __dict__ an evaluator keeps nothing."""
    values: dict[Hashable, Any] = getattr(evaluator, "__dict__", {}).setdefault(ENTRY, {})
    if key not in values:
        values[key] = make()
    return values[key]
