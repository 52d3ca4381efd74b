"""Bounds from constraints: tables that are confined to some ranks, and limits on the number of tables or shards.

What a set of ranks must carry, divided by their number, is a bound, because no rank's part exceeds the step. This is
applied to every rank, every host, every set of ranks that some table is confined to, and all ranks together.

A constraint on numbers leaves its tables a limited number of places: each rank (or host) times the most that it may
hold. Two things follow. Options that take many places displace others, so a price on places is paid (as on bytes). And
a table that takes few places puts much on each of them, so a short step needs many. docs/bounds.md proves all.

Legend: T tables, W ranks, S sets of ranks, R different rows of open ranks, C different numbers of ranks that a mode
covers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import ROUNDING, LinearBound, PieceTerms, SelectionLimits
from recsmith.bounds.relaxation import fitting_price
from recsmith.bounds.table_totals import TableTotals
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import matmul
from recsmith.problems.legality import Legality

MOST_SETS = 256  # sets that tables are confined to, in addition to ranks and hosts: those that carry most
MOST_LIMITS = 256  # most limits that are evaluated, those on most tables first
HALVINGS = 40  # halvings of the seconds of a step, beginning with those of the longest table


@dataclass(frozen=True, slots=True)
class ConfinedRanks:
    """Seconds that no plan can undercut because of what these ranks must carry."""

    seconds: float
    ranks: Ints


def confined_bound(evaluator: Evaluator, linear: LinearBound) -> float:
    """Seconds that no plan can undercut because of what some ranks must carry; 0 if tables may be on all ranks."""
    found = confined_ranks(evaluator, linear)
    return 0.0 if found is None else found.seconds


def confined_ranks(evaluator: Evaluator, linear: LinearBound) -> ConfinedRanks | None:
    """The ranks that must carry most for their number; None if tables may be on all ranks, or a table has no place."""
    legality, tables = evaluator.problem.legality, len(evaluator.problem.tables)
    if legality.open is None:
        return None
    least = TableTotals(evaluator, linear).per_table(SelectionLimits()).value
    pinned: Bools = np.isin(np.arange(tables), [t for t, rule in legality.splits.items() if rule.pinned])
    if not np.isfinite(least).all():
        return None  # no plan exists, which other code reports
    fixed = _pinned_seconds(evaluator, linear, np.flatnonzero(pinned))
    own, carried = _confined(legality.open[~pinned], least[~pinned])
    sets = _sets(own, evaluator.problem.cluster.local_world_size)
    inside = (
        own.astype(np.float32) @ (~sets).T.astype(np.float32) == 0
    )  # (R, S): no rank of a row is outside of the set
    seconds = (matmul(carried, inside) + matmul(sets, fixed)) / sets.sum(axis=1)
    most = int(seconds.argmax())
    return ConfinedRanks(float(seconds[most]) * (1 - ROUNDING), np.flatnonzero(sets[most]))


def _confined(open_: Bools, seconds: Floats) -> tuple[Bools, Floats]:
    """Different rows (R, W) of open ranks, and the seconds (R,) of their tables; at most MOST_SETS, the costliest."""
    rows, row = cast(tuple[Bools, Ints], np.unique(open_, axis=0, return_inverse=True))
    total: Floats = np.bincount(row.ravel(), seconds, minlength=len(rows)).astype(np.float64)
    heaviest = np.argsort(-total, kind="stable")[:MOST_SETS]
    return rows[heaviest], total[heaviest]


def _pinned_seconds(evaluator: Evaluator, linear: LinearBound, pinned: Ints) -> Floats:
    """Seconds (W,) of each rank for the pieces of pinned tables, and for their groups' openings and shared seconds."""
    problem = evaluator.problem
    seconds: Floats = np.zeros(problem.cluster.world_size)
    held: Bools = np.zeros((problem.cluster.world_size, evaluator.groups), dtype=bool)
    for t in pinned.tolist():
        modes = np.unique(problem.options.mode[problem.options.start[t] : problem.options.start[t + 1]])
        if len(modes) != 1:
            continue
        size, pieces = int(problem.modes.coverage[modes[0]]), problem.legality.splits[t].pinned
        widths = np.array([width for width, _ in pieces])
        each = PieceTerms(evaluator, np.repeat(modes, len(pieces)), widths).seconds(linear)[0]
        for (_, target), more in zip(pieces, each.tolist(), strict=True):
            seconds[target * size : (target + 1) * size] += more
            held[target * size : (target + 1) * size, evaluator.group[modes[0]]] = True
    return seconds + linear.opening * held.sum(axis=1) + evaluator.shared[held.any(axis=0)].sum()


def _sets(own: Bools, local: int) -> Bools:
    """Nonempty sets of ranks (S, W): each rank, each host, all ranks, and those that tables are confined to."""
    world: Ints = np.arange(own.shape[1], dtype=np.int64)
    hosts: Bools = world[: len(world) // local, None] == world // local
    every: Bools = np.vstack([world[:, None] == world, hosts, np.ones((1, len(world)), dtype=bool), own])
    return every[every.any(axis=1)]


# --- tables that are counted -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SharedPlaces:
    """Seconds that no plan can undercut because tables share a limited number of places.

    group: the constraint's index in the problem's legality. price: seconds per place for which `seconds` is proven;
    spread: seconds of a step, below which tables would need more places than there are.
    """

    seconds: float
    group: int
    price: float
    spread: float


def counted_bound(evaluator: Evaluator, linear: LinearBound) -> float:
    """Seconds that no plan can undercut because tables share places; 0 if no constraint limits their number."""
    return max((each.seconds for each in shared_places(evaluator, linear)), default=0.0)


def shared_places(evaluator: Evaluator, linear: LinearBound) -> list[SharedPlaces]:
    """The bound of each constraint that limits numbers of tables or shards; none if no plan exists."""
    legality, world = evaluator.problem.legality, evaluator.problem.cluster.world_size
    limits = sorted(_limits(legality), key=lambda limit: -len(limit.tables))[:MOST_LIMITS]
    if not limits:
        return []
    coverage = np.unique(evaluator.problem.modes.coverage)
    least = TableTotals(evaluator, linear).per_coverage(coverage)
    if not np.isfinite(least.min(axis=1)).all():
        return []  # no plan exists, which other code reports
    found: list[SharedPlaces] = []
    for limit in limits:
        (priced, price), spread = _priced(limit, coverage, least, world), _spread(limit, coverage, least)
        found.append(SharedPlaces(max(priced, spread) * (1 - ROUNDING), limit.group, price, spread))
    return found


@dataclass(frozen=True, slots=True)
class _PlaceLimit:
    """At most `places` places for these tables; a place has `unit` ranks (1, or those of a host).

    group: the index of the constraint.
    """

    group: int
    tables: Ints
    places: int
    unit: int


def _limits(legality: Legality) -> Iterator[_PlaceLimit]:
    for number, group in enumerate(legality.groups):
        if group.kind != "together":
            tables = np.flatnonzero(np.isin(legality.row, group.rows) & (legality.row >= 0))
            places = group.most * (legality.world // group.local)
            yield _PlaceLimit(number, tables, places, group.local if group.kind == "tables" else 1)


def _taken(limit: _PlaceLimit, coverage: Ints) -> Ints:
    """The least number of places (C,) of a piece that covers this many ranks."""
    return -(-coverage // limit.unit)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What the tables select at a price: seconds, and the number of places in the attribute `bytes`."""

    seconds: float
    bytes: float


def _priced(limit: _PlaceLimit, coverage: Ints, least: Floats, world: int) -> tuple[float, float]:
    """(mean seconds of a rank if the options of all tables take no more places than there are, price of a place)."""
    taken = _taken(limit, coverage)

    def at(price: float) -> _Selected:
        chosen = (least[limit.tables] + price * taken).argmin(axis=1)
        seconds = np.take_along_axis(least[limit.tables], chosen[:, None], axis=1)
        return _Selected(float(seconds.sum()), float(taken[chosen].sum()))

    price = fitting_price(at, limit.places)
    others = np.delete(least, limit.tables, axis=0).min(axis=1).sum()
    counted = (least[limit.tables] + price * taken).min(axis=1).sum()
    return float(others + counted - price * limit.places) / world, price


def _spread(limit: _PlaceLimit, coverage: Ints, least: Floats) -> float:
    """The shortest step in which the tables, each spread over as many places as needed, take no more than there are.

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
