"""Prices of pieces that do not span the world, and the least price of placing each table with them.

docs/bounds.md proves the prices. Those of the pieces on a rank add up to at most

    ready_multiplier * ready + rest_multiplier * rest,

whichever pieces the rank holds, for any ready and rest within a node's ranges. A piece that takes more than half of
`ready` is big: it also pays for what no other piece can use of its rank, or of each rank of the host that it covers.

Legend: K nodes side by side, N pieces, J planes, F phases, k work terms, m modes, n width steps, o options.
"""

from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.column_splits import least_cost
from recsmith.bounds.multipliers import NodeArrays, least_product
from recsmith.bounds.relaxation import Relaxation, covered_bytes
from recsmith.costs.protocol import Evaluator
from recsmith.problems import NO_PIECE
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP, Span

REST_SHARES = (0.0, 0.5, 1.0)
"""Shares of rest_multiplier in the price of what could have filled a rank beside a big piece. Trade-off: any are valid;
more find slightly higher prices and cost a pass over all pieces each; not tuned further."""
OPERATIONS = 12  # array operations on all pieces in one evaluation, about; so work is counted alike on every machine


class LocalPieces:
    """Pieces of single ranks and hosts, of every width, and what tables are placed with.

    rows: first the modes whose columns may be split at will, then single options of all others.
    """

    def __init__(
        self, evaluator: Evaluator, relaxation: Relaxation, opening: float, slopes: Floats, dominated: Bools,
        tables: Ints,
    ) -> None:  # fmt: skip
        """Slopes (J, F, k): of the planes. opening: the least that a rank pays for holding a piece of a group.

        dominated: groups (G,) that no table needs to be placed in; their pieces are left out. tables (C,), in order:
        those whose pieces are priced.
        """
        self.problem = problem = evaluator.problem
        self.families: list[Ints] = []  # each (m, n): pieces of m modes by width
        split = self._split_at_will()
        split = split[~dominated[evaluator.group[split]] & np.isin(problem.modes.table[split], tables)]
        modes, widths = self._every_width(split)
        mine = np.isin(problem.options.table, tables) & ~np.isin(problem.options.mode, split)
        whole = np.flatnonzero(relaxation.option_fits & ~relaxation.option_worldwide & mine)
        piece = problem.options.piece[whole]
        self.count = np.where(piece != NO_PIECE, problem.options.count[whole], 0)  # (o, 2)
        self.whole = len(modes) + np.arange(piece.size).reshape(-1, piece.shape[1])
        modes = np.concatenate([modes, np.repeat(problem.options.mode[whole], piece.shape[1])])
        widths = np.concatenate([widths, problem.pieces.width[piece].ravel()])
        head, tail = problem.memory(modes, widths)
        least_width = np.minimum(problem.least_width, problem.demand.dim)[problem.modes.table[modes]]
        self.fits: Bools = problem.fits_alone(modes, head, tail) & (widths >= least_width)
        self.size = problem.modes.coverage[modes].astype(np.float64)  # ranks that a piece covers
        self.bytes = covered_bytes(problem, modes, head, tail)
        self.group = evaluator.group[modes]
        self.of_group = [(group, np.flatnonzero(self.group == group)) for group in np.unique(self.group).tolist()]
        self._set_seconds(evaluator, evaluator.terms(modes, widths), opening, slopes)
        rows = np.concatenate([modes[family[:, 0]] for family in self.families] + [modes[self.whole[:, 0]]])
        self.key = np.searchsorted(tables, problem.modes.table[rows]) * evaluator.groups + evaluator.group[rows]
        self.modes, self.widths = modes, widths

    def _split_at_will(self) -> Ints:
        """Modes whose columns may be split into any widths."""
        modes = self.problem.modes
        own = np.flatnonzero(modes.span != Span.WORLD)
        splitting = np.isin(modes.type, [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns])
        return own[splitting[own]] if self.problem.space.widths == "any" else own[:0]

    def _every_width(self, modes: Ints) -> tuple[Ints, Ints]:
        """(mode, columns) of pieces of every width of modes that are split at will; notes them by dim."""
        dims = self.problem.demand.dim[self.problem.modes.table[modes]]
        every, widths, made = [modes[:0]], [modes[:0]], 0
        for dim in np.unique(dims).tolist():
            mine, steps = modes[dims == dim], int(dim) // WIDTH_STEP
            self.families.append(made + np.arange(len(mine) * steps).reshape(-1, steps))
            every.append(np.repeat(mine, steps))
            widths.append(np.tile(WIDTH_STEP * (1 + np.arange(steps)), len(mine)))
            made += len(mine) * steps
        return np.concatenate(every), np.concatenate(widths)

    def _set_seconds(self, evaluator: Evaluator, terms: Floats, opening: float, slopes: Floats) -> None:
        """Seconds of pieces with terms (N, k): of each plane in the first phase, of the rest, and alone on a rank."""
        self.ready = np.einsum("nk,jk->nj", terms, slopes[:, 0])  # (N, J)
        self.rest = np.einsum("nk,fk->n", terms, slopes[:, 1:].min(axis=0))
        loads = evaluator.loads(terms)
        self.alone, self.alone_rest = loads[0] - opening, loads[1:].sum(axis=0)

    def facts(self) -> tuple[Ints, Floats]:
        """The tables (N,) of pieces, and all that their prices rest on."""
        count = np.concatenate([np.full(len(self.size) - self.count.size, -1), self.count.ravel()])
        known = (self.widths, count, self.group, self.size, self.bytes, self.fits, self.alone, self.alone_rest,
                 self.rest, *self.ready.T)  # fmt: skip
        facts: Floats = np.array(known, dtype=np.float64).T
        return self.problem.modes.table[self.modes], facts

    @cached_property
    def numbers(self) -> int:
        """Numbers that one evaluation works on, about."""
        return OPERATIONS * self.ready.size + sum(family.size * family.shape[1] // 4 for family in self.families)

    def cheapest(self, nodes: NodeArrays, byte_price: Floats) -> Floats:
        """Least price (K, rows) of a row's table, placed by its mode with pieces that fit the ranges of the nodes."""
        price = self._priced(nodes) + byte_price[:, None] * (self.bytes / self.size)
        fits = self.fits & (self.alone <= nodes.ready[:, 1:]) & (self.alone_rest <= nodes.rest[:, 1:])
        price = np.where(fits, price * self.size, np.inf)
        split = [least_cost(price[:, family]) for family in self.families]
        whole = price[:, self.whole]  # (K, o, 2)
        return np.concatenate(
            [*split, np.where(self.count > 0, whole * np.maximum(self.count, 1), 0.0).sum(axis=2)], axis=1
        )

    def _priced(self, nodes: NodeArrays) -> Floats:
        """The price of each piece on each rank that it covers (K, N), bytes apart."""
        first = self._first_phase(nodes)
        last = self.rest * nodes.rest_multiplier[:, None]
        own = self.ready.T[nodes.plane]  # (K, N): by the plane that decides who is big
        big: Bools = own > nodes.ready[:, 1:] / 2
        beside = self.fits & ~big  # pieces that may share a rank with a big one
        free: Bools = (beside & (own <= 0)).any(axis=1)  # some of them take no time: then nothing is left unused
        inverse = np.divide(1.0, own, where=beside & (own > 0), out=np.zeros_like(own))
        first_ratio, last_ratio = first * inverse, last * inverse
        alone = np.full_like(first, -np.inf)
        for share in REST_SHARES:
            ratio = first_ratio + (1 - share) * last_ratio
            fill, rest_fill = ratio.max(axis=1, initial=0.0), share * nodes.rest_multiplier
            unused = (
                least_product(nodes.ready_multiplier - fill, nodes.ready)
                + (nodes.rest_multiplier - rest_fill) * nodes.rest[:, 0]
            )  # fmt: skip
            np.maximum(alone, unused[:, None] + fill[:, None] * own + rest_fill[:, None] * self.rest, out=alone)
        price = first + last
        return np.where(big & ~free[:, None], np.maximum(price, alone), price)

    def _first_phase(self, nodes: NodeArrays) -> Floats:
        """What the seconds of pieces in the first phase are worth (K, N)."""
        first: Floats = np.empty((len(nodes.ready), len(self.group)))
        for group, mine in self.of_group:  # one product a group: (K, J) by (J, its pieces)
            first[:, mine] = (nodes.ready_multiplier[:, None] * nodes.mix[:, group]) @ self.ready[mine].T
        return first
