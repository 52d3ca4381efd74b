"""What pieces cost in a box of phase_branching.py by the multipliers of a node, and what tables then cost at least.

docs/bounds.md proves the prices: those on a rank add up to at most

    ready_multiplier * ready + rest_multiplier * rest,

whatever stands there. A piece that takes more than half of `ready` also pays for what no other piece can use of its
rank.

Legend: K nodes side by side, T tables, G fusion groups, N pieces, J planes, W ranks, m modes, n width steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation, covered_bytes
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP, Span

SHARES = (0.0, 0.5, 1.0)  # of `rest_multiplier` in what the unused rest of a rank could have been filled with
SLACK = 1e-13  # of bytes times their price, which may be far larger than the seconds that they are added to


@dataclass(frozen=True)
class Multipliers:
    """Multipliers of the two phases, of a byte, and of planes (G, J); `plane` decides which pieces are big."""

    ready_multiplier: float
    rest_multiplier: float
    byte: float
    mix: Floats
    plane: int


@dataclass(frozen=True)
class PhaseRange:
    """Between which seconds the slowest rank stands, in the first phase and in the rest."""

    ready: tuple[float, float]
    rest: tuple[float, float]


class PiecePrices:
    """What pieces cost under multipliers, and what tables then cost at least."""

    def __init__(self, evaluator: Evaluator) -> None:
        problem = self.problem = evaluator.problem
        self.tables, self.groups, self.world = len(problem.tables), evaluator.groups, problem.cluster.world_size
        self.capacity = float(problem.capacity.sum())
        self.opening = min(plane.opening for plane in evaluator.planes)
        self.slopes: Floats = np.stack([plane.slopes for plane in evaluator.planes])  # (J, F, k)
        self.worldwide: Bools = np.zeros(self.groups, dtype=bool)
        self.worldwide[evaluator.group[problem.modes.span == Span.WORLD]] = True
        self.fixed = evaluator.shared.sum(axis=1) + np.where(self.worldwide, self.opening, 0.0)
        relaxation = Relaxation(evaluator, barred=True)
        self._spread_out(evaluator, relaxation)
        self.pieces = _LocalPieces(evaluator, relaxation, self.opening, self.slopes)
        key = np.concatenate([self.spread_key, self.pieces.key])
        self.order = np.argsort(key, kind="stable")
        self.cells, self.first = np.unique(key[self.order], return_index=True)
        self.numbers = self.pieces.numbers + len(key)

    def _spread_out(self, evaluator: Evaluator, relaxation: Relaxation) -> None:
        """Options that span the world: seconds of each plane on every rank (o, J), and their bytes."""
        options = self.problem.options
        mine = np.flatnonzero(relaxation.option_fits & relaxation.option_worldwide)
        modes, width = options.mode[mine], self.problem.pieces.width[options.piece[mine, 0]]
        self.spread = np.einsum("ok,jfk->oj", evaluator.terms(modes, width), self.slopes)
        self.spread_bytes, self.spread_group = relaxation.option_bytes[mine], evaluator.group[modes]
        self.spread_key = options.table[mine] * self.groups + self.spread_group

    def opening_of(self, paid: Bools) -> Floats:
        """Seconds (G,) that each group adds to what every rank pays for certain, beside those that are paid."""
        local = bool((paid & ~self.worldwide).any())
        return self.fixed + np.where(self.worldwide | local, 0.0, self.opening)

    def certain(self, paid: Bools) -> float:
        """Seconds that these groups cost the slowest rank at least, before any piece."""
        return float(self.fixed[paid].sum()) + (self.opening if (paid & ~self.worldwide).any() else 0.0)

    def least(self, boxes: Sequence[PhaseRange], multipliers: Sequence[Multipliers]) -> tuple[Floats, Floats]:
        """(least cost of each table in each group (K, T, G), what the box adds (K,))."""
        box = np.array([(*box.ready, *box.rest) for box in boxes])
        ready_multiplier, rest_multiplier, byte = np.array(
            [(each.ready_multiplier, each.rest_multiplier, each.byte) for each in multipliers]
        ).T
        mix = np.stack([each.mix for each in multipliers])  # (K, G, J)
        plane = np.array([each.plane for each in multipliers])
        spread = np.einsum("oj,koj->ko", self.spread, mix[:, self.spread_group]) + byte[:, None] * self.spread_bytes
        placed = (
            self.pieces.cheapest(box, ready_multiplier, rest_multiplier, byte * self.world, mix, plane) / self.world
        )
        values = np.concatenate([spread, placed], axis=1)[:, self.order]
        least = np.full((len(boxes), self.tables * self.groups), np.inf)
        least[:, self.cells] = np.minimum.reduceat(values, self.first, axis=1)
        constant = (
            _at_worse_end(1 - ready_multiplier, box[:, :2])
            + _at_worse_end(1 - rest_multiplier, box[:, 2:])
            - byte * self.capacity * (1 + SLACK)
        )
        return least.reshape(len(boxes), self.tables, self.groups), constant


def _at_worse_end(factor: Floats, ends: Floats) -> Floats:
    """The least of factor (K,) times anything between two ends (K, 2)."""
    return (factor[:, None] * ends).min(axis=1)


class _LocalPieces:
    """Every piece that does not span the world, of every width, and the ways to lay tables with them."""

    def __init__(self, evaluator: Evaluator, relaxation: Relaxation, opening: float, slopes: Floats) -> None:
        self.problem = problem = evaluator.problem
        self.families: list[Ints] = []  # each (m, n): pieces of m modes by width
        own = np.flatnonzero(problem.modes.span != Span.WORLD)
        splitting = np.isin(problem.modes.type, [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns])
        free = own[splitting[own]] if problem.space.widths == "any" else own[:0]
        modes, widths = self._by_width(free)
        wholes = np.flatnonzero(
            relaxation.option_fits & ~relaxation.option_worldwide & ~np.isin(problem.options.mode, free)
        )
        piece = problem.options.piece[wholes]
        self.count = np.where(piece != NO_PIECE, problem.options.count[wholes], 0)  # (o, 2)
        self.whole = len(modes) + np.arange(2 * len(wholes)).reshape(-1, 2)
        modes = np.concatenate([modes, np.repeat(problem.options.mode[wholes], 2)])
        widths = np.concatenate([widths, problem.pieces.width[piece].ravel()])
        head, tail = problem.memory(modes, widths)
        least_width = np.minimum(problem.least_width, problem.demand.dim)[problem.modes.table[modes]]
        self.fits: Bools = problem.fits_alone(modes, head, tail) & (widths >= least_width)
        terms = evaluator.terms(modes, widths)
        self.ready = np.einsum("nk,jk->nj", terms, slopes[:, 0])  # (N, J)
        self.rest = np.einsum("nk,fk->n", terms, slopes[:, 1:].min(axis=0))
        loads = evaluator.loads(terms)
        self.alone, self.alone_rest = loads[0] - opening, loads[1:].sum(axis=0)
        self.size = problem.modes.coverage[modes].astype(np.float64)
        self.bytes = covered_bytes(problem, modes, head, tail)
        self.group = evaluator.group[modes]
        self.of_group = [(group, np.flatnonzero(self.group == group)) for group in np.unique(self.group).tolist()]
        rows = np.concatenate([modes[family[:, 0]] for family in self.families] + [modes[self.whole[:, 0]]])
        self.key = problem.modes.table[rows] * evaluator.groups + evaluator.group[rows]

    def _by_width(self, modes: Ints) -> tuple[Ints, Ints]:
        """Pieces of every width of modes whose columns may be split at will; notes them by dim."""
        dims = self.problem.demand.dim[self.problem.modes.table[modes]]
        every, widths, made = [modes[:0]], [modes[:0]], 0
        for dim in np.unique(dims).tolist():
            mine, steps = modes[dims == dim], int(dim) // WIDTH_STEP
            self.families.append(made + np.arange(len(mine) * steps).reshape(-1, steps))
            every.append(np.repeat(mine, steps))
            widths.append(np.tile(WIDTH_STEP * (1 + np.arange(steps)), len(mine)))
            made += len(mine) * steps
        return np.concatenate(every), np.concatenate(widths)

    @cached_property
    def numbers(self) -> int:
        """Numbers that one evaluation works on, about."""
        return 12 * self.ready.size + sum(family.size * family.shape[1] // 2 for family in self.families)

    def cheapest(
        self, box: Floats, ready_multiplier: Floats, rest_multiplier: Floats, byte: Floats, mix: Floats, plane: Ints
    ) -> Floats:
        """Least price (K, rows) of laying a table's mode, with pieces that fit the box."""
        price = self._priced(box, ready_multiplier, rest_multiplier, mix, plane) + byte[:, None] * (
            self.bytes / self.size
        )
        fits = self.fits & (self.alone <= box[:, 1:2]) & (self.alone_rest <= box[:, 3:4])
        price = np.where(fits, price * self.size, np.inf)
        split = [_cheapest_partition(price[:, family]) for family in self.families]
        whole = price[:, self.whole]  # (K, o, 2)
        return np.concatenate(
            [*split, np.where(self.count > 0, whole * np.maximum(self.count, 1), 0.0).sum(axis=2)], axis=1
        )

    def _priced(
        self, box: Floats, ready_multiplier: Floats, rest_multiplier: Floats, mix: Floats, plane: Ints
    ) -> Floats:
        """The price of each piece on each rank that it covers (K, N); see docs/bounds.md for that of big pieces."""
        first: Floats = np.empty((len(ready_multiplier), len(self.group)))
        for group, mine in self.of_group:  # one product a group: (K, J) by (J, its pieces)
            first[:, mine] = (ready_multiplier[:, None] * mix[:, group]) @ self.ready[mine].T
        last = self.rest * rest_multiplier[:, None]
        own = self.ready.T[plane]  # (K, N): by the plane that decides who is big
        big: Bools = own > box[:, 1:2] / 2
        beside = self.fits & ~big  # may stand beside a big one
        free: Bools = (beside & (own <= 0)).any(axis=1)  # some of them at no cost: then nothing is left unused
        alone = np.full_like(first, -np.inf)
        for share in SHARES:
            ratio = np.divide(first + (1 - share) * last, own, where=beside & (own > 0), out=np.zeros_like(own))
            fill, late_fill = ratio.max(axis=1, initial=0.0), share * rest_multiplier
            unused = _at_worse_end(ready_multiplier - fill, box[:, :2]) + (rest_multiplier - late_fill) * box[:, 2]
            np.maximum(alone, unused[:, None] + fill[:, None] * own + late_fill[:, None] * self.rest, out=alone)
        price = first + last
        return np.where(big & (self.size == 1) & ~free[:, None], np.maximum(price, alone), price)


def _cheapest_partition(price: Floats) -> Floats:
    """Least price (K, m) of n width steps cut into pieces, by dynamic programming over price (K, m, n)."""
    nodes, modes, steps = price.shape
    best = np.zeros((nodes, modes, steps + 1))
    for filled in range(1, steps + 1):
        np.min(price[:, :, :filled] + best[:, :, filled - 1 :: -1][:, :, :filled], axis=2, out=best[:, :, filled])
    return best[:, :, steps]
