"""The heaviest table with its columns split: what ranks that hold some of them take, and what else fits there.

Legend: n width steps of the table, N pieces of other tables, J planes, K multipliers side by side, R limits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.phase_prices import TablePrices
from recsmith.costs.protocol import Evaluator, RisesBeside
from recsmith.elementary import matmul


@dataclass(frozen=True)
class HeldBeside:
    """What pieces of other tables take on ranks with steps of the table, those that take least first.

    held (n,): what a rank's steps take by one plane, infinite if they cannot be held so. order, seconds (n, N): the
    pieces, and what each takes by that plane.
    """

    held: Floats
    order: Ints
    seconds: Floats

    def most(self, step: int, price: Floats, limits: Floats) -> Floats:
        """The most (K, R) that pieces with these prices (K, N) add up to on a rank with limits (R,), next to steps."""
        left: Floats = np.maximum(limits - self.held[step], 0.0)
        fitting: Ints = self.seconds[step].searchsorted(left, side="right")
        seconds, most = self.seconds[step, : fitting[-1]], np.zeros((len(price), len(limits)))
        if left[-1] > 0 and len(seconds):
            sorted_ = price[:, self.order[step, : len(seconds)]]
            worth = np.divide(sorted_, seconds, out=np.where(sorted_ > 0, np.inf, 0.0), where=seconds > 0)
            worth = np.maximum.accumulate(worth, axis=1)
            some = np.flatnonzero((fitting > 0) & (left > 0))
            most[:, some] = worth[:, fitting[some] - 1] * left[some]
        return most


@dataclass(frozen=True)
class SplitTable:
    """A table in one mode, by how many width steps of it a rank holds (n + 1,).

    table: its index among different tables. mode: of the problem. fits (n,): whether a rank can hold a piece of this
    many steps; pieces (n, J): its seconds by each plane. ready, rest: least seconds of the steps on a rank. crowded:
    the least `ready` of a rank that holds them in several pieces, or holds anything else. others (N, J), groups_beside
    (N,), rest_beside (N,): pieces of other tables. beside: what these take if the steps are one piece, and if they are
    several; for `some` of the steps.
    """

    table: int
    mode: int
    group: int
    fits: Bools
    pieces: Floats
    ready: Floats
    rest: Floats
    crowded: Floats
    others: Floats
    groups_beside: Ints
    rest_beside: Floats
    some: Ints
    beside: tuple[HeldBeside, HeldBeside]

    def taken(self, mix: Floats) -> Floats:
        """The least seconds (K, n + 1) of steps on a rank by mixes of planes (K, J)."""
        return covers(np.where(self.fits, matmul(mix, self.pieces.T), np.inf))

    @cached_property
    def by_plane(self) -> Floats:
        """The least seconds of steps on a rank by each plane alone (J, n + 1)."""
        return self.taken(np.eye(self.pieces.shape[1]))

    def seconds_beside(self, mix: Floats) -> Floats:
        """Seconds (K, N) of pieces of other tables by mixes of planes (K, G, J)."""
        return np.einsum("nj,knj->kn", self.others, mix[:, self.groups_beside])

    def dearest(self, price: Floats) -> Floats:
        """The highest price per second by each plane (K, J), over pieces with these prices (K, N)."""
        worth = [
            np.divide(price, plane, out=np.where(price > 0, np.inf, 0.0), where=plane > 0) for plane in self.others.T
        ]
        return np.stack([each.max(axis=1, initial=0.0) for each in worth], axis=1)

    def most_beside(self, price: Floats, limits: Floats, steps: Sequence[int]) -> Floats:
        """The most (K, n + 1, R) that pieces with these prices (K, N) add up to, next to these steps on a rank.

        limits (R,): of `ready`, in ascending order.
        """
        found = np.zeros((len(price), len(self.ready), len(limits)))
        for place in np.flatnonzero(np.isin(self.some, steps)).tolist():
            found[:, self.some[place]] = np.maximum(*(each.most(place, price, limits) for each in self.beside))
        return found


def covers(cost: Floats) -> Floats:
    """Least cost (..., n + 1) of 0 to n width steps, in one or more pieces of these costs (..., n)."""
    best = np.concatenate([np.zeros((*cost.shape[:-1], 1)), cost], axis=-1)
    for filled in range(2, best.shape[-1]):
        pairs = best[..., 1 : filled // 2 + 1] + best[..., filled - 1 : filled - filled // 2 - 1 : -1]
        best[..., filled] = np.minimum(best[..., filled], pairs.min(axis=-1))
    return best


def split_tables(
    evaluator: Evaluator, prices: TablePrices, table: int, groups: Bools, below: float
) -> list[SplitTable]:
    """A different table in each of its modes of these groups (G,). below: steps that take more do not matter."""
    found, first = list[SplitTable](), 0
    for family in prices.pieces.families:
        for row, piece in enumerate(family, first):
            of, group = divmod(int(prices.pieces.key[row]), prices.groups)
            if of == table and groups[group]:
                found.append(_split_table(evaluator, prices, piece, below))
        first += len(family)
    return found


def _split_table(evaluator: Evaluator, prices: TablePrices, piece: Ints, below: float) -> SplitTable:
    pieces = prices.pieces
    table, fits, planes = int(pieces.table[piece[0]]), pieces.fits[piece], pieces.ready[piece]
    one = np.append(0.0, np.where(fits, pieces.alone[piece], np.inf))
    best = covers(np.where(fits, planes.T, np.inf))  # (J, n + 1)
    several = np.full_like(best, np.inf)
    for filled in range(2, len(one)):
        several[:, filled] = (best[:, 1:filled] + best[:, filled - 1 : 0 : -1]).min(axis=1)
    other = np.flatnonzero(pieces.fits & (pieces.table != table))
    more = (planes[:, None] + pieces.ready[other]).max(axis=2).min(axis=1, initial=np.inf)
    in_pieces = several.max(axis=0)
    ready = np.minimum(one, in_pieces)
    some = np.flatnonzero(ready < below)
    some = some[some > 0]
    return SplitTable(
        table=table, mode=int(pieces.modes[piece[0]]), group=int(pieces.group[piece[0]]), fits=fits,
        pieces=planes, ready=ready,
        rest=covers(np.where(fits, pieces.rest[piece], np.inf)),
        crowded=np.minimum(in_pieces, np.maximum(one, np.append(0.0, more))),
        others=pieces.ready[other], groups_beside=pieces.group[other], rest_beside=pieces.rest[other], some=some,
        beside=(
            _beside_one(evaluator, prices, piece[some - 1], other), _beside_several(prices, several.T[some], other)
        ),
    )  # fmt: skip


def _beside_one(evaluator: Evaluator, prices: TablePrices, held: Ints, other: Ints) -> HeldBeside:
    """What other pieces take next to a single piece, by the plane under which the single one takes most."""
    pieces, slopes = prices.pieces, prices.planes.slopes[:, 0]
    terms, seconds = evaluator.terms(pieces.modes[other], pieces.widths[other]), list[Floats]()
    plane = pieces.ready[held].argmax(axis=1)
    mine = pieces.group[other] == pieces.group[held[0]] if len(held) else np.zeros(0, dtype=bool)
    for beside, number in zip(evaluator.terms(pieces.modes[held], pieces.widths[held]), plane.tolist(), strict=True):
        own = pieces.ready[other, number].copy()
        if isinstance(evaluator, RisesBeside):
            own[mine] = np.maximum(own[mine], matmul(evaluator.beside(terms[mine], beside), slopes[number]))
        seconds.append(own)
    fits = pieces.fits[held]
    return _sorted(np.where(fits, pieces.ready[held, plane], np.inf), np.array(seconds).reshape(len(held), len(other)))


def _beside_several(prices: TablePrices, several: Floats, other: Ints) -> HeldBeside:
    """What other pieces take next to several pieces of the table, whose total by each plane is given (n, J)."""
    plane = np.where(np.isfinite(several), several, -1.0).argmax(axis=1)
    return _sorted(several[np.arange(len(several)), plane], prices.pieces.ready[other][:, plane].T)


def _sorted(held: Floats, seconds: Floats) -> HeldBeside:
    order = np.argsort(seconds, axis=1, kind="stable")
    return HeldBeside(held, order, np.take_along_axis(seconds, order, axis=1))
