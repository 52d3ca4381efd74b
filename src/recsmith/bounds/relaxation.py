"""The relaxation behind bounds and planners: each table by itself selects its cheapest option.

For a limit z on the cost of one piece and a price on memory, every table selects the option of least
seconds + price * bytes, summed over the ranks it covers, among options whose pieces cost at most z and fit a device.
What other tables select does not matter. If a cost model is not additive, a linear lower bound takes its place.

Legend: T tables, O options, P pieces, G fusion groups.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.compiled_prices import CompiledOptions, can_choose
from recsmith.bounds.linear_bounds import (
    LinearBound,
    SelectionLimits,
    cheapest_options,
    kept_for,
    mean_linear_bound,
    piece_work,
)
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding import Span
from recsmith.sharding.memory import Bytes

PRICE_HALVINGS = 24  # halvings of the interval of the price of memory: from a factor of 4 down to a relative 2e-7
DEAREST = 1e6  # seconds per byte: so high that only bytes matter
LEAST_SECONDS = 1e-12  # seconds; the first price on memory is computed from this if tables cost nothing
UNLIMITED = SelectionLimits()


class Weighed(Protocol):
    """Seconds and bytes of selected options, per table or in total."""

    @property
    def seconds(self) -> Floats | float:
        """Seconds of the selected options."""
        ...

    @property
    def bytes(self) -> Floats | float:
        """Device bytes of the selected options."""
        ...


@dataclass(frozen=True)
class Choice:
    """The option that each table selects (T,), and its seconds and bytes over all covered ranks.

    A table without any option left has option -1, infinite seconds and 0 bytes.
    """

    option: Ints
    seconds: Floats
    bytes: Floats


class Relaxation:
    """Prices of all pieces (P,) and options (O,) of a problem; `choose` may be called many times.

    Seconds and bytes of a piece are on each rank that it covers, those of an option over all ranks.
    """

    def __init__(self, evaluator: Evaluator, *, linear: LinearBound | None = None, barred: bool = False) -> None:
        """linear: the linear bound in place of the cost model; by default the mean of the evaluator's planes.

        barred: whether to include options that are legal alone but not with others: for bounds, not for searches.
        """
        problem = self.problem = evaluator.problem
        self.evaluator = evaluator
        self.piece_work = piece_work(evaluator)
        head, tail = problem.least_memory(problem.pieces.mode, problem.pieces.width)
        self.piece_bytes = covered_bytes(problem, problem.pieces.mode, head, tail)
        self.piece_fits = problem.fits_alone(problem.pieces.mode, head, tail)
        piece, count = problem.options.piece, problem.options.count
        self.option_bytes = (self.piece_bytes[piece] * count).sum(axis=1)
        self.option_worldwide = problem.modes.span[problem.options.mode] == Span.WORLD
        self.option_group = evaluator.group[problem.options.mode]
        self.option_room = problem.options.fits(self.piece_fits)
        self.option_fits: Bools = self.option_room & (~problem.options.barred | barred)
        heaviest = np.maximum(head.device, tail.device)
        self.option_heaviest = np.where(piece != NO_PIECE, heaviest[piece], 0).max(axis=1)
        self._price(linear or mean_linear_bound(evaluator))

    def _price(self, linear: LinearBound) -> None:
        """Set the seconds of pieces and options by a linear bound."""
        self._compiled: CompiledOptions | None = None  # for these prices and options, made when it is first needed
        self.linear, options, modes = linear, self.problem.options, self.problem.modes
        self.piece_seconds, self.piece_alone = self.piece_work.seconds(linear)
        self.option_seconds = modes.coverage[options.mode] * (self.piece_seconds[options.piece] * options.count).sum(
            axis=1
        )
        shared = modes.span[options.mode] != Span.RANK
        self.option_everywhere = np.where(shared, self.option_seconds / self.problem.cluster.world_size, 0.0)
        self.option_largest = np.where(options.piece != NO_PIECE, self.piece_alone[options.piece], 0.0).max(axis=1)

    def repriced(self, linear: LinearBound) -> "Relaxation":
        """The same pieces and options with the prices of another linear bound, much faster than a new relaxation."""
        other = copy(self)
        other._price(linear)
        return other

    def reopened(self, barred: Bools) -> "Relaxation":
        """The same prices, with these options (O,) barred instead of those that the problem bars."""
        other = copy(self)
        other.option_fits, other._compiled = self.option_room & ~barred, None
        return other

    def within(self, groups: Bools) -> "Relaxation":
        """The same prices, with only options of these fusion groups (G,) allowed."""
        other = copy(self)
        other.option_fits, other._compiled = self.option_fits & groups[self.option_group], None
        return other

    def choose(self, limits: SelectionLimits = UNLIMITED) -> Choice:
        """The cheapest option of each table within some limits; the first one of equally cheap options."""
        if can_choose():
            return self._choose_compiled(limits)
        worldwide, limit, value = self.option_worldwide, limits.limit, self.option_seconds
        most = np.where(worldwide, limit, limits.local) if limits.local < limit else limit
        open_ = self.option_fits & (self.option_largest <= most)
        if limits.weight < np.inf:
            open_ &= self.option_heaviest <= limits.weight
        if limits.groups is not None:
            open_ &= limits.groups[self.option_group]
        if limits.world_penalty:
            value = value * np.where(worldwide, 1 + limits.world_penalty, 1.0)
        if limits.price:
            value = value + limits.price * self.option_bytes
        least, option = cheapest_options(np.where(open_, value, np.inf), self.problem.options.start)
        missing = least == np.inf
        return Choice(
            np.where(missing, NO_PIECE, option),
            np.where(missing, np.inf, self.option_seconds[option]),
            np.where(missing, 0.0, self.option_bytes[option]),
        )

    def _choose_compiled(self, limits: SelectionLimits) -> Choice:
        """Like `choose`, by compiled code."""
        if self._compiled is None:
            self._compiled = CompiledOptions(
                self.option_seconds, self.option_bytes, self.option_largest, self.option_heaviest,
                self.option_worldwide, self.option_fits, self.option_group, self.problem.options.start,
            )  # fmt: skip
        each = (limits.limit, limits.local, limits.weight, limits.world_penalty, limits.price)
        return Choice(*self._compiled.cheapest(np.array(each, np.float64), limits.groups))


def fitting_price(at: Callable[[float], Weighed], room: float) -> float:
    """The least price on memory (seconds per byte) at which the selected options fit all devices; 0 if none is needed.

    at(price): what tables select at a price; the higher it is, the lighter their options. room: bytes of all devices.
    """
    free = at(0.0)
    if float(np.sum(free.bytes)) <= room or not np.isfinite(np.sum(free.seconds)):
        return 0.0
    low, high = 0.0, max(float(np.sum(free.seconds)), LEAST_SECONDS) / room
    while float(np.sum(at(high).bytes)) > room and high < DEAREST:
        low, high = high, high * 4
    for _ in range(PRICE_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.sum(at(middle).bytes)) > room else (low, middle)
    return high


def covered_bytes(problem: Problem, modes: Ints, head: Bytes, tail: Bytes) -> Floats:
    """Device bytes (N,) of pieces over all covered ranks. head, tail: on each rank but the last, and on the last."""
    others = problem.modes.coverage[modes] - 1
    return (others * head.device + tail.device).astype(np.float64)


def shared_relaxation(evaluator: Evaluator, linear: LinearBound | None = None, *, barred: bool = False) -> Relaxation:
    """Relaxation(evaluator, linear=linear, barred=barred), built at the first call; users must not change it.

    A linear bound is recognised by identity, not by value.
    """
    relaxation = kept_for(evaluator, "relaxation", lambda: Relaxation(evaluator))
    if linear is not None:  # its relaxation keeps the bound alive, and so its id
        relaxation = kept_for(evaluator, ("relaxation", id(linear)), lambda: relaxation.repriced(linear))
    return relaxation.reopened(np.zeros_like(evaluator.problem.options.barred)) if barred else relaxation
