"""Prices of pieces by how full their group is: a plane for heads whose shares rise as a group grows.

A piece bears more, the more its group holds on a rank; other planes count what it bears alone. Here a group is told
apart by levels: between which sums the terms lie on which its shares rest most. At a level a piece bears the shares of
its lower ends at least, and beside that a part of the launch that opens the group: the part of the level that it fills.
The least of all levels is its price. What the pieces of a group on a rank cost together by these prices is no more than
its head, without the part of the launch that they pay for (docs/bounds.md).

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

STEPS = (6, 8)  # into how many parts levels cut the terms on which shares rest most
FILLS = 3  # ways to fill a level that every table has
LEVELS = STEPS[0] * STEPS[1]
PAID = (0.3, 0.8)  # parts of a launch that pieces pay for: of little, and of much work beside it
TURNS = 40  # of the play
SHARPEST, SHARPER = 5e-3, 10.0  # share of the total by which parts must differ to count, and how much less at the end
FINER = 5.0  # the same of fills, of which there is a launch at most
LEAST_HEIGHT = -500.0  # below it a share would be 0
STEP = 0.3  # of the way to its answer that a mix goes in a turn
MOST_PRICES = 400_000  # pieces times levels: trade-off between the bound and the time that it takes
LEAST_S = 1e-12  # seconds; less than any table costs
TINY = float(np.finfo(float).tiny)


class LocalTerms(Protocol):
    """What is read of LocalPieces (phase_prices.py)."""

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
    """Options that span the world: the table of each (o,), and its seconds over all ranks, infinite where closed."""

    table: Ints
    seconds: Floats


@dataclass(frozen=True)
class LevelShares:
    """Shares of what prices are mixed of, at each level of each group: planes (G, L, J), fills (G, L, 3 + C).

    fills: ways in which pieces fill a level: by seconds, by the terms that tell levels apart, and by each table.
    """

    planes: Floats
    fills: Floats

    def towards(self, other: "LevelShares", step: float) -> "LevelShares":
        """So great a step of the way to others."""
        return LevelShares(
            self.planes + (other.planes - self.planes) * step, self.fills + (other.fills - self.fills) * step
        )


class FillLevels:
    """Prices of pieces by levels, which pay for parts of a launch. shares: of each such part, once there are prices."""

    def __init__(self, evaluator: Evaluator, most: float, pieces: LocalTerms, copies: Ints) -> None:
        """most: seconds that pieces of no rank exceed in the first phase. copies (C,): how many are like each table."""
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
        """Seconds (N, PAID) of pieces in the first phase, beyond what their groups open with; 0 where a piece fits not.

        A group opens with a launch less those parts of it. spread: what tables cost that span the world.
        """
        self.shares = [self._played(spread, paid) for paid in PAID]
        found = [self._priced(shares, paid).min(axis=1) for shares, paid in zip(self.shares, PAID, strict=True)]
        return np.where(self.pieces.fits[:, None], np.stack(found, axis=1), 0.0)

    def _priced(self, shares: LevelShares, paid: float) -> Floats:
        """Prices (N, L); infinite where a piece exceeds a level."""
        price = np.empty(self.open.shape)
        both = np.concatenate([shares.planes, paid * shares.fills[:, :, :FILLS]], axis=2)
        of_table = paid * self.launch * shares.fills[:, :, FILLS:] / self.copies
        for group, mine in self.of_group:
            of_columns = of_table[group][:, self.pieces.table[mine]].T * self.pieces.columns[mine, None]
            price[mine] = np.einsum("nlc,lc->nl", self.parts[mine], both[group]) + of_columns
        price[~self.open] = np.inf
        return price

    def _played(self, spread: SpreadTables, paid: float) -> LevelShares:
        """The best shares of a play: tables answer prices by their cheapest ways and levels, and shares answer these.

        Of splits of columns it sees those into two pieces, and into more that are equally wide but for a step.
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
        """Equal shares that add up to so much."""
        shares = LevelShares(np.zeros((*self.cells, self.planes)), np.zeros((*self.cells, FILLS + len(self.copies))))
        shares.planes[:], shares.fills[:, :, :FILLS] = total / self.planes, total / FILLS
        return shares

    def _answer(self, piece: Ints, ranks: Floats, level: Ints) -> LevelShares:
        """What shares of one would make of the pieces that tables choose, on so many ranks, each at its level (N,)."""
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
        """Ways to place tables: two pieces and how many ranks these take in all (E, 2), and the table (E,)."""
        pieces = self.pieces
        piece, count = [pieces.whole], [pieces.count]
        for family in pieces.families:
            steps = np.int64(family.shape[1])
            parts, first = np.arange(1, steps + 1, dtype=np.int64), np.arange(1, (steps + 1) // 2, dtype=np.int64)
            narrow, wider = np.divmod(steps, parts)  # as wide as one another, but for a step
            both = np.append(narrow, first), np.append(np.minimum(narrow + 1, steps), steps - first)
            times = np.append(parts - wider, first**0), np.append(wider, first**0)
            piece.append(family[:, np.stack(both, axis=1) - 1].reshape(-1, 2))
            count.append(np.tile(np.stack(times, axis=1), (len(family), 1)))
        ways = np.concatenate(piece)
        return ways, np.concatenate(count) * pieces.size[ways], pieces.table[ways[:, 0]]


def _levels(steps: list[tuple[int, Floats]], terms: int) -> tuple[Floats, Floats, list[int]]:
    """Of each level the terms that a group holds at least and at most (L, k), and those that tell levels apart."""
    ends = [list(zip([0.0, *edges], [*edges, np.inf], strict=True)) for _, edges in steps]
    chosen: Floats = np.array(list(product(*ends)))  # (L, terms of steps, 2)
    rises = [term for term, _ in steps]
    lower, upper = np.zeros((len(chosen), terms)), np.full((len(chosen), terms), np.inf)
    lower[:, rises], upper[:, rises] = chosen[:, :, 0], chosen[:, :, 1]
    return lower, upper, rises


def _softened(mean: Floats, sharp: float) -> Floats:
    """Shares (..., c) that add up to 1, more of what is highest."""
    height = (mean - mean.max(axis=-1, keepdims=True)) * sharp
    share = exp(np.maximum(height, LEAST_HEIGHT))
    return share / share.sum(axis=-1, keepdims=True)


def has_levels(evaluator: Evaluator) -> bool:
    """Whether shares of the cost model's head must rise, and more than one device holds pieces."""
    rises = isinstance(evaluator, RisesBeside) and bool(evaluator.share_steps(STEPS))
    return rises and evaluator.problem.cluster.world_size > 1
