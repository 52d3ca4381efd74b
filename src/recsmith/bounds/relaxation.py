"""The cheapest way to lay each table, if devices could share tables freely: the heart of bounds and of planners.

For a limit z on what one piece may cost and a price on memory, every table alone picks the option of least
cost + price * memory, summed over the ranks it covers, among options whose pieces cost at most z and fit a device.
Where a cost model is not additive, a plane below its head (costs/protocol.py) takes its place.

Legend: T tables, O options, P pieces, G fusion groups.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding import Span
from recsmith.sharding.memory import Bytes

PRICE_STEPS = 24  # halvings of the price of memory
FREE = SelectionLimits()
DEAREST = 1e6  # seconds per byte: more than any table is worth


class Weighed(Protocol):
    """Anything that says what picks cost and weigh, per table or in total."""

    @property
    def seconds(self) -> Floats | float:
        """Seconds of the picks."""
        ...

    @property
    def bytes(self) -> Floats | float:
        """Device bytes of the picks."""
        ...


@dataclass(frozen=True)
class Choice:
    """What the tables pick (T,): option, seconds and bytes over all covered ranks; where none is left -1, inf and 0."""

    option: Ints
    seconds: Floats
    bytes: Floats


class Relaxation:
    """Prices of all pieces and options of a problem; cheap to ask again and again.

    floor: what takes the place of the head; the mean of the evaluator's planes by default.
    barred: whether options count that are legal alone but not beside others: for bounds, not for searches.
    """

    def __init__(self, evaluator: Evaluator, *, linear: LinearBound | None = None, barred: bool = False) -> None:
        problem = self.problem = evaluator.problem
        self.evaluator, self.linear = evaluator, linear or mean_linear_bound(evaluator)
        self.piece_seconds, self.piece_alone = linear_seconds(
            evaluator, self.linear, problem.pieces.mode, problem.pieces.width
        )
        self.piece_bytes = covered_bytes(problem, problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
        self.piece_fits = problem.fits_alone(problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
        piece, count = problem.options.piece, problem.options.count
        used = piece != NO_PIECE
        coverage = problem.modes.coverage[problem.options.mode]
        self.option_seconds = coverage * (self.piece_seconds[piece] * count).sum(axis=1)
        self.option_bytes = (self.piece_bytes[piece] * count).sum(axis=1)
        shared = problem.modes.span[problem.options.mode] != Span.RANK
        self.option_worldwide = problem.modes.span[problem.options.mode] == Span.WORLD
        self.option_everywhere = np.where(shared, self.option_seconds / problem.cluster.world_size, 0.0)
        self.option_largest = np.where(used, self.piece_alone[piece], 0.0).max(axis=1)
        self.option_group = evaluator.group[problem.options.mode]
        self.option_room = problem.options.fits(self.piece_fits)
        self.option_fits: Bools = self.option_room & (~problem.options.barred | barred)
        heaviest = np.maximum(problem.pieces.head.device, problem.pieces.tail.device)
        self.option_heaviest = np.where(used, heaviest[piece], 0).max(axis=1)

    def reopened(self, barred: Bools) -> "Relaxation":
        """The same prices, where these options (O,) are barred instead of the problem's."""
        other = copy(self)
        other.option_fits = self.option_room & ~barred
        return other

    def choose(self, limits: SelectionLimits = FREE) -> Choice:
        """What each table picks under some terms; their limits are on seconds beyond the opening of a group."""
        limit = np.where(self.option_worldwide, limits.limit, min(limits.limit, limits.local))
        open_ = self.option_fits & (self.option_largest <= limit) & (self.option_heaviest <= limits.weight)
        if limits.menu is not None:
            open_ = open_ & limits.menu[self.option_group]
        seconds = self.option_seconds * np.where(self.option_worldwide, 1 + limits.world_penalty, 1.0)
        value = np.where(open_, seconds + limits.price * self.option_bytes, np.inf)
        start = self.problem.options.start
        least = np.minimum.reduceat(value, start[:-1])
        first = np.flatnonzero((value == np.repeat(least, np.diff(start))) & open_)
        table, where = np.unique(self.problem.options.table[first], return_index=True)
        option = np.full(len(start) - 1, NO_PIECE)
        option[table] = first[where]
        missing = option == NO_PIECE
        return Choice(
            option,
            np.where(missing, np.inf, self.option_seconds[option]),
            np.where(missing, 0.0, self.option_bytes[option]),
        )


def fitting_price(at: Callable[[float], Weighed], room: float) -> float:
    """The least price on memory at which what tables pick fits the room of all devices; 0 if it fits for free.

    at(price) tells what tables pick; a price that is dear enough makes them pick their lightest options.
    """
    free = at(0.0)
    if float(np.sum(free.bytes)) <= room or not np.isfinite(np.sum(free.seconds)):
        return 0.0
    low, high = 0.0, max(float(np.sum(free.seconds)), 1e-12) / room
    while float(np.sum(at(high).bytes)) > room and high < DEAREST:
        low, high = high, high * 4
    for _ in range(PRICE_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.sum(at(middle).bytes)) > room else (low, middle)
    return high


def mean_linear_bound(evaluator: Evaluator) -> LinearBound:
    """The mean of a cost model's planes, for every group."""
    slopes = np.mean([plane.slopes.sum(axis=0) for plane in evaluator.planes], axis=0)
    return LinearBound(np.tile(slopes, (evaluator.groups, 1)), min(plane.opening for plane in evaluator.planes))


def linear_seconds(evaluator: Evaluator, linear: LinearBound, modes: Ints, widths: Ints) -> tuple[Floats, Floats]:
    """(seconds on the floor (N,), seconds alone beyond the opening (N,)) of pieces on each rank that they cover."""
    terms = evaluator.terms(modes, widths)
    alone = evaluator.head(terms).sum(axis=-1) - linear.opening
    if evaluator.additive:
        return alone, alone
    return np.einsum("nk,nk->n", terms, linear.slopes[evaluator.group[modes]]), alone


def covered_bytes(problem: Problem, modes: Ints, head: Bytes, tail: Bytes) -> Floats:
    """Device bytes over all ranks that a piece covers."""
    others = problem.modes.coverage[modes] - 1
    return (others * head.device + tail.device).astype(np.float64)
