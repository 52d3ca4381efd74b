"""A bound from constraints that count: tables that stay apart, and at most so many tables or shards on a rank.

Such a constraint leaves its tables only so many places, each a rank (or a host) times the most that may be on it. Two
things follow. Options that take many places push others out, so a price on places is paid (as one on bytes is). And a
table that takes few places puts much on each of them, so a short step needs many places. docs/bounds.md proves both.

Legend: T tables, C different numbers of ranks that a mode covers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.relaxation import fitting_price
from recsmith.bounds.selection import LinearBound
from recsmith.bounds.table_totals import TableTotals
from recsmith.bounds.tolerances import ROUNDING
from recsmith.costs.protocol import Evaluator
from recsmith.problems.legality import Legality

MOST_LIMITS = 256  # that are asked, those of most tables first
HALVINGS = 40  # of the seconds of a step, from those of the longest table


def counted_bound(evaluator: Evaluator, linear: LinearBound) -> float:
    """Seconds that no plan can undercut because of places that tables share; 0 where nothing counts them."""
    legality, world = evaluator.problem.legality, evaluator.problem.cluster.world_size
    limits = sorted(_limits(legality), key=lambda limit: -len(limit.tables))[:MOST_LIMITS]
    if not limits:
        return 0.0
    coverage = np.unique(evaluator.problem.modes.coverage)
    least = TableTotals(evaluator, linear).per_coverage(coverage)
    if not np.isfinite(least.min(axis=1)).all():
        return 0.0  # no plan exists, which others say
    bounds = [max(_priced(limit, coverage, least, world), _spread(limit, coverage, least)) for limit in limits]
    return max(bounds) * (1 - ROUNDING)


@dataclass(frozen=True, slots=True)
class _PlaceLimit:
    """At most `places` places for these tables; a place has `unit` ranks (1, or those of a host)."""

    tables: Ints
    places: int
    unit: int


def _limits(legality: Legality) -> Iterator[_PlaceLimit]:
    for group in legality.groups:
        if group.kind != "together":
            tables = np.flatnonzero(np.isin(legality.row, group.rows) & (legality.row >= 0))
            places = group.most * (legality.world // group.local)
            yield _PlaceLimit(tables, places, group.local if group.kind == "tables" else 1)


def _taken(limit: _PlaceLimit, coverage: Ints) -> Ints:
    """Places (C,) that a piece takes at least which covers so many ranks."""
    return -(-coverage // limit.unit)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What the tables select at a price: seconds, and places where bytes are asked for."""

    seconds: float
    bytes: float


def _priced(limit: _PlaceLimit, coverage: Ints, least: Floats, world: int) -> float:
    """Mean seconds of a rank where the options of all tables take no more places than there are."""
    taken = _taken(limit, coverage)

    def at(price: float) -> _Selected:
        chosen = (least[limit.tables] + price * taken).argmin(axis=1)
        seconds = np.take_along_axis(least[limit.tables], chosen[:, None], axis=1)
        return _Selected(float(seconds.sum()), float(taken[chosen].sum()))

    price = fitting_price(at, limit.places)
    others = np.delete(least, limit.tables, axis=0).min(axis=1).sum()
    counted = (least[limit.tables] + price * taken).min(axis=1).sum()
    return float(others + counted - price * limit.places) / world


def _spread(limit: _PlaceLimit, coverage: Ints, least: Floats) -> float:
    """The shortest step in which the tables, each spread over as many places as it needs, take no more than there are.

    A table with s seconds over all ranks needs at least s / (unit * step) places.
    """
    seconds, taken = least[limit.tables], _taken(limit, coverage)

    def too_many(step: float) -> bool:
        needed = np.ceil(seconds / (limit.unit * step) * (1 - ROUNDING))
        return float(np.maximum(needed, taken).min(axis=1).sum()) > limit.places

    low, high = 0.0, float(seconds.max(initial=0.0, where=np.isfinite(seconds))) / limit.unit
    for _ in range(HALVINGS if high > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if too_many(middle) else (low, middle)
    return low
