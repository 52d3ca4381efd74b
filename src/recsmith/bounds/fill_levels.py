"""Prices of pieces by how full their group is: a plane for heads whose shares rise as a group grows.

A piece costs more, the more its group holds on a rank; other planes count only its cost alone. Here levels distinguish
the states of a group: ranges of the sums of the terms on which its shares depend most. At a level a piece costs at
least what the shares at the level's lower ends make of it, plus a part of the launch that opens the group: the part of
the level that the piece fills. Its price is the least over all levels. The pieces of a group on a rank cost by these
prices together at most its head, without the part of the launch that they pay for (docs/bounds.md).

Legend: N pieces, C different tables, G fusion groups, L levels, J planes, k work terms, F phases, c = J + 4 parts of a
price: planes, and what fills a level; E ways to place a table.
"""

from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import cheapest_options, least_opening
from recsmith.costs.protocol import Evaluator, RisesBeside
from recsmith.elementary import exp, matmul

STEPS = (6, 8)  # into how many parts levels cut the two terms on which shares depend most
FILLS = 3  # measures of how much a piece fills a level, common to all tables
LEVELS = STEPS[0] * STEPS[1]
PAID = (0.3, 0.8)  # shares of a launch that pieces pay for: for little, and for much other work
TURNS = 40  # turns of the play
SHARPEST, SHARPER = 5e-3, 10.0  # share of the total by which parts must differ to matter; how much less at the end
FINER = 5.0  # the same factor for fills, which add up to one launch at most
LEAST_HEIGHT = -500.0  # below this height a share would be 0
STEP = 0.3  # how far a mix moves towards its answer in a turn
MOST_PRICES = 400_000  # most prices, pieces times levels: trade-off between the bound and the time that it takes
LEAST_S = 1e-12  # seconds; less than any table costs
TINY = float(np.finfo(float).tiny)


class LocalTerms(Protocol):
    """The attributes of LocalPieces (phase_prices.py) that are read."""

    terms: Floats
    group: Ints
    table: Ints
    columns: Floats
    fits: Bools
    size: Floats
    rest: Floats
    families: list[Ints]
    whole: Ints
    count: Ints


@dataclass(frozen=True)
class SpreadTables:
    """Options that span the world: the table of each (o,), and its seconds over all ranks, infinite if it is closed."""

    table: Ints
    seconds: Floats


@dataclass(frozen=True)
class LevelShares:
    """Shares of the parts that make up prices, at each level of each group: planes (G, L, J), fills (G, L, 3 + C).

    fills: measures of how much pieces fill a level: by seconds, by the terms that define levels, and by each table.
    """

    planes: Floats
    fills: Floats

    def towards(self, other: "LevelShares", step: float) -> "LevelShares":
        """These shares, moved towards others by a fraction of the difference."""
        return LevelShares(
            self.planes + (other.planes - self.planes) * step, self.fills + (other.fills - self.fills) * step
        )


class FillLevels:
    """Prices of pieces by levels, which pay for parts of a launch. shares: one set per part in PAID, once priced."""

    def __init__(self, evaluator: Evaluator, most: float, pieces: LocalTerms, copies: Ints) -> None:
        """most: seconds that the pieces of no rank exceed in the first phase. copies (C,): number of equal tables."""
        assert isinstance(evaluator, RisesBeside)
        self.launch, self.pieces, self.copies = least_opening(evaluator), pieces, copies
        slopes = np.stack([plane.slopes[0] for plane in evaluator.planes])  # (J, k)
        lower, upper, rises = _levels(evaluator.share_steps(STEPS), slopes.shape[1])
        self.planes = planes = len(slopes)
        self.parts: Floats = np.zeros((len(pieces.terms), len(lower), planes + FILLS))
        for level, least in enumerate(lower):
            self.parts[:, level, :planes] = matmul(evaluator.at_least(pieces.terms, least), slopes.T)
        self.parts[:, :, planes] = self.parts[:, :, :planes].mean(axis=2) * (self.launch / most)
        for number, term in enumerate(rises, planes + 1):
            self.parts[:, :, number] = pieces.terms[:, term, None] * (self.launch / np.maximum(upper[:, term], TINY))
        self.open: Bools = (pieces.terms[:, None] <= upper).all(axis=2) & pieces.fits[:, None]
        self.cells = evaluator.groups, len(lower)
        self.shares: list[LevelShares] = []
        self.of_group = [(group, np.flatnonzero(pieces.group == group)) for group in np.unique(pieces.group).tolist()]

    def seconds(self, spread: SpreadTables) -> Floats:
        """Seconds (N, PAID) of pieces in the first phase, beyond their groups' opening; 0 if a piece does not fit.

        A group's opening is then a launch minus the part that pieces pay. spread: the cost of tables that span the
        world.
        """
        self.shares = [self._played(spread, paid) for paid in PAID]
        found = [self._priced(shares, paid).min(axis=1) for shares, paid in zip(self.shares, PAID, strict=True)]
        return np.where(self.pieces.fits[:, None], np.stack(found, axis=1), 0.0)

    def _priced(self, shares: LevelShares, paid: float) -> Floats:
        """Prices (N, L); infinite if a piece exceeds a level."""
        price = np.empty(self.open.shape)
        both = np.concatenate([shares.planes, paid * shares.fills[:, :, :FILLS]], axis=2)
        of_table = paid * self.launch * shares.fills[:, :, FILLS:] / self.copies
        for group, mine in self.of_group:
            of_columns = of_table[group][:, self.pieces.table[mine]].T * self.pieces.columns[mine, None]
            price[mine] = np.einsum("nlc,lc->nl", self.parts[mine], both[group]) + of_columns
        price[~self.open] = np.inf
        return price

    def _played(self, spread: SpreadTables, paid: float) -> LevelShares:
        """The best shares of a play: tables answer prices by their cheapest placement and level, shares answer tables.

        Of splits of columns it considers those into two pieces, and into more of equal width up to one step.
        """
        pieces, copies, rows = self.pieces, self.copies, np.arange(len(self.pieces.table))
        piece, times, table = self._ways()
        order = np.argsort(np.concatenate([table, spread.table]), kind="stable")
        start = np.searchsorted(np.concatenate([table, spread.table])[order], np.arange(len(copies) + 1))
        shares, mean, best = self._shares(1.0), self._shares(0.0), -np.inf
        found = shares
        for turn in range(TURNS if start[-1] and (np.diff(start) > 0).all() else 0):
            price = self._priced(shares, paid)
            level = price.argmin(axis=1)
            each = price[rows, level] + pieces.rest
            local = np.where(times > 0, each[piece] * np.maximum(times, TINY), 0.0).sum(axis=1)
            least, chosen = cheapest_options(np.concatenate([local, spread.seconds])[order], start)
            total = float((least * copies).sum())
            if not np.isfinite(total):
                break  # a table fits nowhere in these groups
            if total > best:
                best, found = total, shares
            way = order[chosen][order[chosen] < len(piece)]
            answer = self._answer(piece[way].ravel(), (times[way] * copies[table[way], None]).ravel(), level)
            mean = mean.towards(answer, 2 / (turn + 2))
            sharp = (1 + SHARPER * turn / TURNS) / (SHARPEST * max(total, LEAST_S))
            shares = shares.towards(
                LevelShares(_softened(mean.planes, sharp), _softened(mean.fills, FINER * sharp)), STEP
            )
        return found

    def _shares(self, total: float) -> LevelShares:
        """Equal shares that add up to this total."""
        shares = LevelShares(np.zeros((*self.cells, self.planes)), np.zeros((*self.cells, FILLS + len(self.copies))))
        shares.planes[:], shares.fills[:, :, :FILLS] = total / self.planes, total / FILLS
        return shares

    def _answer(self, piece: Ints, ranks: Floats, level: Ints) -> LevelShares:
        """How much each share gets from the pieces that tables choose, on this many ranks, each at its level (N,)."""
        piece, ranks = piece[ranks > 0], ranks[ranks > 0]
        where = self.pieces.group[piece], level[piece]
        found = self._shares(0.0)
        parts = self.parts[piece, level[piece]] * ranks[:, None]
        np.add.at(found.planes, where, parts[:, : self.planes])
        np.add.at(found.fills[:, :, :FILLS], where, parts[:, self.planes :])
        table = self.pieces.table[piece]
        of_columns = self.launch * self.pieces.columns[piece] * ranks / self.copies[table]
        np.add.at(found.fills, (*where, FILLS + table), of_columns)
        return found

    def _ways(self) -> tuple[Ints, Floats, Ints]:
        """Ways to place tables: two pieces, the number of ranks of all such pieces (E, 2), and the table (E,)."""
        pieces = self.pieces
        piece, count = [pieces.whole], [pieces.count]
        for family in pieces.families:
            steps = np.int64(family.shape[1])
            parts, first = np.arange(1, steps + 1, dtype=np.int64), np.arange(1, (steps + 1) // 2, dtype=np.int64)
            narrow, wider = np.divmod(steps, parts)  # of equal width up to one step
            both = np.append(narrow, first), np.append(np.minimum(narrow + 1, steps), steps - first)
            times = np.append(parts - wider, first**0), np.append(wider, first**0)
            piece.append(family[:, np.stack(both, axis=1) - 1].reshape(-1, 2))
            count.append(np.tile(np.stack(times, axis=1), (len(family), 1)))
        ways = np.concatenate(piece)
        return ways, np.concatenate(count) * pieces.size[ways], pieces.table[ways[:, 0]]


def _levels(steps: list[tuple[int, Floats]], terms: int) -> tuple[Floats, Floats, list[int]]:
    """For each level the least and most terms of a group (L, k), and the indices of the terms that define levels."""
    ends = [list(zip([0.0, *edges], [*edges, np.inf], strict=True)) for _, edges in steps]
    chosen: Floats = np.array(list(product(*ends)))  # (L, terms of steps, 2)
    rises = [term for term, _ in steps]
    lower, upper = np.zeros((len(chosen), terms)), np.full((len(chosen), terms), np.inf)
    lower[:, rises], upper[:, rises] = chosen[:, :, 0], chosen[:, :, 1]
    return lower, upper, rises


def _softened(mean: Floats, sharp: float) -> Floats:
    """Shares (..., c) that add up to 1, larger for the highest values."""
    height = (mean - mean.max(axis=-1, keepdims=True)) * sharp
    share = exp(np.maximum(height, LEAST_HEIGHT))
    return share / share.sum(axis=-1, keepdims=True)


def has_levels(evaluator: Evaluator) -> bool:
    """Whether shares of the cost model's head must rise, and more than one device holds pieces."""
    rises = isinstance(evaluator, RisesBeside) and bool(evaluator.share_steps(STEPS))
    return rises and evaluator.problem.cluster.world_size > 1
