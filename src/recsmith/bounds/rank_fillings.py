"""Prices of pieces by what one rank can hold of them, for problems of few different tables.

A filling is a set of large pieces that one rank can hold: within the seconds of a node in both phases, and its memory.
A linear programme covers all tables by fillings of the ranks, and its duals give the worth of each large piece beyond
its seconds. Any such worth gives a valid bound (docs/bounds.md), so the programme may end early, may know only those
splits of a table that have few parts, and may treat pieces as smaller ones.

Legend: C different tables, G fusion groups, J planes, N pieces, L large pieces, P fillings, n choices, R limits.
"""

from dataclasses import dataclass, replace

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import BYTES_ROUNDING, ROUNDING
from recsmith.bounds.phase_nodes import PhaseNode, least_product
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.simplex import Simplex
from recsmith.bounds.table_choices import TableChoices
from recsmith.bounds.table_totals import least_cost
from recsmith.elementary import matmul

ROUNDS = 10  # programmes of a node, each with more large pieces
MOST_NEW = 3  # pieces that a round adds
LEAST_SHARE = 0.02  # least share of a rank that a large piece takes
MOST_PIVOTS = 400  # most pivots of a programme
PIVOT = 300_000  # numbers that could be worked on while Python sets up one pivot
SETUP = 8  # pivots that could be made while a programme is set up
MISSING = 100.0  # times the seconds of a node: cost of a table that is not placed
FILLING = 100  # the same for a filling, for each piece
ALMOST = 1e-9  # of a piece: it is still held if this little room is missing
JIGGLE = 1e-6  # of a rank: differences between rows, so that few pivots gain nothing
SAFE = 1 + 1e-9  # times the limits of a rank, above rounding errors
LOST = 1e-12  # of the largest numbers of which a bound is the difference: above their rounding errors


@dataclass(frozen=True, slots=True)
class FillingMultipliers:
    """The proof of a node's bound by fillings, as certificates state it (plans/certificates.py).

    ready (J,), rest: worth of seconds by each plane, and in later phases. byte_price: seconds per byte on all ranks.
    mix (G, J): shares of planes in groups that span the world. large (L,): pieces; worth (L,): of each beyond its
    seconds.
    """

    ready: Floats
    rest: float
    byte_price: float
    mix: Floats
    large: Ints
    worth: Floats


@dataclass(frozen=True, slots=True)
class FillingBound:
    """The bound of a node by fillings: seconds that no plan undercuts, by multipliers.

    large (L,): the pieces for which fillings were listed. groups (G,): fusion groups that the programme uses. ended:
    whether more work would hardly raise it.
    """

    value: float
    large: Ints
    groups: Bools
    ended: bool = True
    multipliers: FillingMultipliers | None = None


class RankFillings:
    """Bounds of nodes by fillings of a rank. work: numbers worked on so far, approximately."""

    def __init__(self, prices: TablePrices, most_bytes: float) -> None:
        """most_bytes: largest device memory of any rank."""
        self.prices, self.choices, self.work = prices, TableChoices(prices), 0
        pieces = prices.pieces
        own = np.where(pieces.size == 1, pieces.bytes, 0.0)  # a host's piece may differ on the host's ranks
        self.loads: Floats = np.column_stack([pieces.ready, pieces.rest, own])  # (N, R)
        self.most_bytes = most_bytes

    def filled(self, node: PhaseNode, large: Ints, most: int, enough: float) -> FillingBound:
        """The bound of a node by at most `most` fillings, at first of these large pieces (L,).

        enough: seconds beyond which it is not raised further.
        """
        programme = NodeProgramme(self, node)
        best = FillingBound(-np.inf, large, np.zeros(self.prices.groups, dtype=bool))
        new, kept, pays = large[programme.fit[large]], large[:0], np.zeros(0, dtype=bool)
        for _ in range(ROUNDS):
            for tried in ((kept, new), (kept[pays], new), (kept[pays], new[:1])):
                large = np.concatenate(tried)
                fillings = programme.fillings(large, most)
                if fillings is not None:
                    break
            else:
                break
            kept = large
            found, pays, new = programme.solved(kept, fillings)
            if found.value > best.value:
                best = replace(found, ended=found.value <= enough)
            new = new[:MOST_NEW]
            if not len(new) or best.value > enough:
                break
        self.work += programme.work
        return best


class NodeProgramme:
    """The linear programmes of one node, in units of the most seconds of its plans."""

    def __init__(self, of: RankFillings, node: PhaseNode) -> None:
        self.prices, self.choices, self.node, self.work = of.prices, of.choices, node, 0
        pieces, (_, ready), (_, rest) = of.prices.pieces, node.ranges.ready, node.ranges.rest
        usable: Bools = np.logical_or.reduce(node.open, axis=0)
        self.mix, self.scale = of.prices.mix(usable), ready + rest
        limits = np.array([ready] * (of.loads.shape[1] - 2) + [rest, of.most_bytes])
        share = of.loads / (np.maximum(limits, np.finfo(float).tiny) * SAFE)
        self.fit: Bools = pieces.fits & (pieces.alone <= ready) & (pieces.alone_rest <= rest)
        self.fit &= usable[pieces.group] & np.logical_and.reduce(share <= 1, axis=1)
        self.share = share[:, _that_bind(share[self.fit])]  # share of a rank that each piece takes (N, R)
        self.most_share: Floats = self.share.max(axis=1)
        possible = node.open[self.choices.table, self.choices.group]
        possible[self.choices.choice[~self.fit[self.choices.piece]]] = False
        self.may, self.place = np.flatnonzero(possible), np.cumsum(possible) - 1
        self.placed = np.flatnonzero(possible[self.choices.choice])  # entries of choices that are possible

    def fillings(self, large: Ints, most: int) -> Floats | None:
        """Fillings (P, L) by large pieces to which no piece can be added; None if they are too many to list.

        Every filling is a part of one of these.
        """
        shares, total = self.share[large], 1
        held, counts = np.zeros((1, self.share.shape[1])), np.zeros((1, len(large)), dtype=np.int8)
        for number in np.argsort(-self.most_share[large], kind="stable").tolist():
            room = np.divide(1 - held, shares[number], where=shares[number] > 0, out=np.full(held.shape, np.inf))
            times = 1 + np.floor(room.min(axis=1) * (1 + ALMOST) + ALMOST).astype(np.int64)
            total = int(times.sum())
            self.work += FILLING * total
            if total > most:
                return None
            which = np.repeat(np.arange(len(held)), times)
            more = np.arange(total) - np.repeat(np.cumsum(times) - times, times)
            held, counts = held[which] + more[:, None] * shares[number], counts[which]
            counts[:, number] = more
        full: Bools = np.ones(len(held), dtype=bool)
        for share in shares[_least_of(shares)]:
            full &= np.logical_or.reduce(held + share > 1, axis=1)
        self.work += len(large) * PIVOT // 6
        return counts[full].astype(np.float64)

    def solved(self, large: Ints, fillings: Floats) -> tuple[FillingBound, Bools, Ints]:
        """(the bound, which large pieces (L,) have a worth beyond seconds, pieces that should be large too)."""
        prices, scale, many = self.prices, self.scale, len(large)
        stands = self._stands_for(large)
        rows, cost, right, planes = self._rows(stands, fillings)
        tables, chosen = len(prices.copies), len(self.may)
        own_cost = np.concatenate([np.zeros(len(right) - tables), np.full(tables, MISSING)])
        simplex = Simplex(right, own_cost)
        simplex.solve(rows, cost, MOST_PIVOTS)
        self.work += (simplex.pivots + SETUP) * (PIVOT + rows.size)
        duals = np.maximum(-simplex.duals, 0.0)
        more = duals[planes + 2 : planes + 2 + many]
        byte_price = float(duals[planes + 1]) * scale * prices.world / prices.capacity
        multipliers = FillingMultipliers(
            duals[:planes], float(duals[planes]), byte_price, self.mix, large[more > 0], more[more > 0] * scale
        )
        filled = float(matmul(fillings, more).max(initial=0.0)) * scale
        value = self._value(multipliers, np.append(more, 0.0)[stands] * scale, filled)
        basic = (simplex.values > JIGGLE) & (simplex.basis >= 0) & (simplex.basis < chosen)
        some = self.may[simplex.basis[basic]]
        groups = np.zeros(prices.groups, dtype=bool)
        groups[self.choices.group[some]] = True
        amount = np.bincount(some, weights=simplex.values[basic], minlength=len(self.choices.table))
        weights = self.choices.ranks * amount[self.choices.choice]
        made = np.bincount(self.choices.piece, weights=weights, minlength=len(self.fit))
        lost = made * (self.most_share - np.append(self.most_share[large], 0.0)[stands])
        lost[large], lost[self.most_share < LEAST_SHARE] = 0.0, 0.0
        new = np.argsort(-lost, kind="stable")
        bound = FillingBound(value, large, groups, multipliers=multipliers)
        return bound, more > 0, new[lost[new] > JIGGLE]

    def _stands_for(self, large: Ints) -> Ints:
        """The large piece that each piece counts as (N,): the largest that takes no more of a rank in any respect.

        L if there is none.
        """
        below: Bools = np.logical_and.reduce(self.share[large] <= self.share[:, None], axis=2) & self.fit[:, None]
        size = np.column_stack([np.where(below, self.most_share[large], -1.0), np.zeros(len(below))])
        stands = size.argmax(axis=1)
        stands[large] = np.arange(len(large))
        return stands

    def _rows(self, stands: Ints, fillings: Floats) -> tuple[Floats, Floats, Floats, int]:
        """(rows (m, n), cost (n,), right (m,), J) of the programme.

        Columns: choices of tables, fillings, and `ready` and `rest` beyond their least values. Rows: seconds on each
        plane and in later phases, and bytes, of all ranks together; large pieces that are placed and not held; ranks;
        both ranges; and tables, all as shares of the totals.
        """
        prices, choices, scale = self.prices, self.choices, self.scale
        (r0, r1), (s0, s1) = self.node.ranges.ready, self.node.ranges.rest
        planes, many = prices.pieces.ready.shape[1], fillings.shape[1]
        tables, chosen = len(prices.copies), len(self.may)
        table, ranks, world = choices.table[self.may], planes + 2 + many, prices.world
        rows: Floats = np.zeros((ranks + 3 + tables, chosen + len(fillings) + 2))
        rows[:planes, :chosen] = choices.ready[self.may].T / (scale * world)
        rows[planes, :chosen] = choices.rest[self.may] / (scale * world)
        rows[planes + 1, :chosen] = choices.bytes[self.may] / prices.capacity
        counted = self.placed[stands[choices.piece[self.placed]] < many]
        where = stands[choices.piece[counted]] * chosen + self.place[choices.choice[counted]]
        held = np.bincount(where, weights=choices.ranks[counted] / world, minlength=many * chosen)
        rows[planes + 2 : ranks, :chosen] = held.reshape(many, chosen)
        rows[planes + 2 : ranks, chosen:-2], rows[ranks, chosen:-2] = -fillings.T, 1.0
        rows[:planes, -2], rows[planes, -1] = -1.0, -1.0
        rows[ranks + 1, -2], rows[ranks + 2, -1] = 1.0, 1.0
        rows[ranks + 3 + table, np.arange(chosen)] = 1 / prices.copies[table]
        spread = (choices.spread[self.may] * self.mix[choices.group[self.may]]).sum(axis=1)
        cost = np.concatenate([spread / scale, np.zeros(len(fillings)), [1.0, 1.0]])
        right: Floats = np.ones(len(rows))
        right[:planes], right[planes] = r0 / scale, s0 / scale
        right[planes + 2 : ranks] = JIGGLE * np.arange(1, many + 1)
        right[ranks + 1], right[ranks + 2] = (r1 - r0) / scale, (s1 - s0) / scale
        return rows, cost, right, planes

    def _value(self, multipliers: FillingMultipliers, more: Floats, filled: float) -> float:
        """The node's bound, valid for any prices: the least cost of all tables, minus the most that ranks can be paid.

        more (N,): seconds that a piece costs beyond its own; filled: the most that those on a rank add up to.
        """
        ready, rest, byte_price = multipliers.ready, multipliers.rest, multipliers.byte_price
        prices, pieces, node = self.prices, self.prices.pieces, self.node
        each = matmul(pieces.ready, ready) + pieces.rest * rest + more
        each = np.where(self.fit, each * pieces.size + byte_price * pieces.bytes, np.inf)
        local = [least_cost(each[family]) for family in pieces.families]
        whole = np.where(pieces.count > 0, each[pieces.whole] * np.maximum(pieces.count, 1), 0.0).sum(axis=1)
        spread = (prices.worldwide * self.mix[prices.worldwide_group]).sum(axis=1) * prices.world
        spread += byte_price * prices.worldwide_bytes
        least: Floats = np.full(len(prices.copies) * prices.groups, np.inf)
        np.minimum.at(least, prices.key, np.concatenate([spread, *local, whole]))
        least = np.where(node.open, least.reshape(-1, prices.groups), np.inf).min(axis=1) * prices.copies
        if not np.isfinite(least).all():  # some table has no place
            return np.inf
        ends = np.array([node.ranges.ready, node.ranges.rest])
        parts = least_product(1 - np.array([float(ready.sum()), rest]), ends)
        paid = filled * SAFE + byte_price * prices.capacity * (1 + BYTES_ROUNDING) / prices.world
        total = float(least.sum()) / prices.world
        value = total + float(parts.sum()) - paid - LOST * (total + float(np.abs(parts).sum()) + paid)
        return (max(value, float(ends[:, 0].sum())) + prices.costs.certain(node.paid)) * (1 - ROUNDING)


def _that_bind(share: Floats) -> Ints:
    """Indices of limits among shares (N, R), without those that another limit always reaches first."""
    return _least_of(-share.T)


def _least_of(rows: Floats) -> Ints:
    """Indices of rows, without those for which another row is nowhere larger."""
    kept: list[int] = []
    for one in range(len(rows)):
        if not any((rows[other] <= rows[one]).all() for other in (*kept, *range(one + 1, len(rows)))):
            kept.append(one)
    return np.array(kept, dtype=np.int64)
