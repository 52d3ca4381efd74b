"""Bounds for plans that split the columns of one table over single ranks; a part of checking.py.

A *spread* says how many columns of the table each rank holds. All spreads are listed again, and the seconds of the
first phase are cut into ranges. For each spread and range there is a least time for ranks that hold columns. The time
that is left on them for other tables limits the prices of these tables there (docs/bounds.md). Every number is rounded
in the direction that weakens the claim.

Legend: n width steps of the table, m ranks that hold some, J planes, N pieces, R ranges, S spreads, c cells: a spread
in a range.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import fsum

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.checked_prices import Plans, covers, mix_of, plain_prices, table_prices
from recsmith.analyses.checked_statement import EQUAL, NO_PLAN, Statement, at_least, at_most, double_below
from recsmith.costs.protocol import RisesBeside
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import LeafProof, SpreadProof

MOST_SPREADS = 20_000
MOST_OPTIONAL = 4  # most groups that plans may leave unused for which all subsets are tried
SLACK = 2.0**-40  # relative to the sum of a cell's numbers: more than 4,000 roundings take off


def split_groups(statement: Statement, table: int) -> Bools:
    """Groups (G,) in which a table can only be split into pieces of any width on single ranks."""
    modes = statement.problem.modes
    split: Bools = np.zeros(statement.evaluator.groups, dtype=bool)
    mine = np.flatnonzero(modes.table == table)
    single = statement.at_will[mine] & (modes.coverage[mine] == 1)
    split[statement.evaluator.group[mine[single]]] = True
    split[statement.evaluator.group[mine[~single]]] = False
    return split


def spread_seconds(statement: Statement, plans: Plans, spreads: SpreadProof, most: float, enough: float) -> Fraction:
    """Lower bound in seconds on all plans of a part, which all split the columns of a table over single ranks.

    most: seconds above which plans do not matter. enough: seconds at which no further proofs are tried; 0 for `most`.

    Raises:
        CorruptFile: the part also has other plans, or has too many spreads to list.
    """
    table, modes = spreads.table, statement.problem.modes
    alone = statement.world == 1 or not statement.evaluator.step_rule.several_phases
    if not 0 <= table < len(plans.open) or alone or (plans.open[table] & ~split_groups(statement, table)).any():
        raise CorruptFile(f"table {table} of the certificate may be placed in another way than split by columns")
    if statement.levels.paid:
        raise CorruptFile("the certificate has levels and ways to split a table; a proof has one of both")
    least = NO_PLAN
    for mode in np.flatnonzero(modes.table == table).tolist():
        if plans.open[table, statement.evaluator.group[mode]]:
            cells = _Cells(statement, plans, _held(statement, plans, mode), spreads.ends, most)
            least = min(least, Fraction(cells.proven(spreads.proofs, enough * (1 + 2 * EQUAL) or most)))
    return least


@dataclass(frozen=True)
class _Held:
    """The table in one mode; arrays of (n + 1,) are by the number of its width steps on a rank.

    ready, rest: least seconds of these steps on the rank. crowded: `ready` of a rank that holds the steps in several
    pieces, or also pieces of other tables. pieces, fits (n,): pieces of 1 to n steps, and whether each fits. others
    (N,): pieces of other tables. beside: for one piece and for several, the steps' seconds by one plane (n + 1,), and
    the seconds of the other pieces by that plane on the same rank (n + 1, N).
    """

    table: int
    group: int
    pieces: slice
    fits: Bools
    ready: Floats
    rest: Floats
    crowded: Floats
    others: Ints
    beside: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


def _held(statement: Statement, plans: Plans, mode: int) -> _Held:
    own = statement.of_mode[mode]
    table, group, fits = int(statement.table[own][0]), int(statement.group[own][0]), statement.fits[own]
    planes = np.where(fits[:, None], statement.ready[own], np.inf)
    one = np.append(0.0, np.where(fits, statement.alone[own] * (1 - EQUAL), np.inf))
    best, several = covers(planes.T), np.full((len(planes) + 1, planes.shape[1]), np.inf)
    for held in range(2, len(several)):
        several[held] = at_most((planes[: held - 1] + best[held - 1 : 0 : -1]).min(axis=0), 1)
    may = statement.fits & statement.local & plans.open[statement.table, statement.group]
    others = np.flatnonzero(may & (statement.table != table))
    theirs = statement.ready[others]
    more = np.array([at_most((each + theirs).max(axis=1).min(initial=np.inf), 1) for each in planes])
    in_pieces = several.max(axis=1)
    plane = np.append(0, np.where(fits, statement.ready[own].argmax(axis=1), 0))
    second = np.where(np.isfinite(several), several, -1.0).argmax(axis=1)
    held_planes, steps = np.vstack([np.zeros(planes.shape[1]), planes]), np.arange(len(several))
    seconds = np.array([_beside_one(statement, own, held, int(plane[held]), others) for held in steps.tolist()])
    return _Held(
        table=table, group=group, pieces=own, fits=fits, ready=np.minimum(one, in_pieces),
        rest=covers(np.where(fits, statement.rest[own], np.inf)[None])[:, 0],
        crowded=np.minimum(in_pieces, np.maximum(one, np.append(np.inf, more))), others=others,
        beside=((held_planes[steps, plane], seconds), (several[steps, second], theirs.T[second])),
    )  # fmt: skip


def _beside_one(statement: Statement, own: slice, held: int, plane: int, others: Ints) -> Floats:
    """Lower bounds (N,), by a plane, on the seconds of other pieces on a rank that holds one piece of `held` steps."""
    seconds, evaluator = statement.ready[others, plane].copy(), statement.evaluator
    if held and isinstance(evaluator, RisesBeside):
        mine = np.flatnonzero(statement.group[others] == statement.group[own][0])
        terms = evaluator.beside(statement.terms[others[mine]], statement.terms[own][held - 1])
        more = statement.seconds(terms, evaluator.planes[plane].slopes[0])
        seconds[mine] = np.maximum(seconds[mine], more)
    return seconds


def _spreads(steps: int, allowed: Ints, ranks: int) -> Iterator[tuple[int, ...]]:
    """All spreads of `steps` width steps over ranks that hold an allowed number each, largest number first."""

    def rest_of(left: int, widest: int, ranks: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        for one in allowed[(allowed <= min(left, widest)) & (allowed * ranks >= left)].tolist() if left else ():
            for others in rest_of(left - one, one, ranks - 1):
                yield (one, *others)

    yield from rest_of(steps, steps, ranks)


class _Cells:
    """All spreads of a mode in all ranges of `ready` (cells), and the bound that is proved of each cell.

    held (c, m): width steps on each rank. free (c,): number of ranks without any. range (c,): number of the range.
    beside (c, m): whether the rank can hold several pieces. ready, rest: lower and upper ends (c,) of both times.
    value (c,): seconds proved so far.
    """

    def __init__(self, statement: Statement, plans: Plans, mode: _Held, ends: tuple[float, ...], most: float) -> None:
        self.statement, self.plans, self.mode = statement, plans, mode
        certain = statement.certain(plans.paid | (np.arange(len(plans.paid)) == mode.group))
        left = -double_below(certain - Fraction(most))  # upper bound on ready + rest
        self.ends: Floats = np.array([*[end for end in ends if end < most], most])
        allowed = np.flatnonzero(at_most(mode.ready + mode.rest, 1) < left)
        spreads: list[tuple[int, ...]] = []
        for spread in _spreads(len(mode.fits), allowed[allowed > 0], statement.world):
            spreads.append(spread)
            if len(spreads) > MOST_SPREADS:
                raise CorruptFile(f"table {mode.table} of the certificate has more than {MOST_SPREADS:,} spreads")
        widest = max(map(len, spreads), default=1)
        held = np.array([(*each, *[0] * (widest - len(each))) for each in spreads], dtype=np.int64).reshape(-1, widest)
        ready = mode.ready[held].max(axis=1, initial=0.0)
        spread, self.range = np.nonzero(ready[:, None] <= self.ends)
        low = np.maximum(np.append(0.0, self.ends)[self.range], ready[spread])
        self.held: Ints = held[spread]
        self.free: Ints = statement.world - (self.held > 0).sum(axis=1)
        self.beside: Bools = (self.held > 0) & (mode.crowded[self.held] <= self.ends[self.range][:, None])
        low_rest = mode.rest[self.held].max(axis=1, initial=0.0)
        self.ready = (low, self.ends[self.range])
        self.rest = (low_rest, np.maximum(at_least(np.maximum(left - low, 0.0), 1), low_rest))
        self.value: Floats = at_most(double_below(certain) + low + low_rest, 2)

    def proven(self, proofs: tuple[LeafProof, ...], enough: float) -> float:
        """The least seconds over all cells, each raised by the multipliers of the proofs."""
        for proof in proofs:
            open_ = np.flatnonzero(self.value < enough)
            if len(open_):
                self.value[open_] = np.maximum(self.value[open_], self._values(open_, proof))
        return float(self.value.min(initial=np.finfo(np.float64).max))

    def _values(self, cells: Ints, proof: LeafProof) -> Floats:
        """Seconds (c,) that the multipliers of a proof give for some cells.

        A rank without the table holds pieces worth at most its seconds. A rank with some of it has two such limits:
        the worth of its seconds less that of the table's own, and the seconds left times the highest worth per second
        of a piece that fits.
        """
        statement, mode = self.statement, self.mode
        mix = mix_of(statement, proof.mix, proof.plane)
        first, last = plain_prices(statement, proof, mix)
        price = np.where(statement.fits, at_most(first + last, 1), np.inf)
        selected = self._selected(table_prices(statement, 0.0, mix, price))
        own = covers(np.where(mode.fits, first[mode.pieces], np.inf)[None])[:, 0]
        own = at_most(own + at_most(proof.rest * mode.rest, 1), 1)
        room = np.maximum(*(self._room(price[mode.others], each) for each in mode.beside))
        held, beside, free = self.held[cells], self.beside[cells], self.free[cells]
        (low, high), (low_rest, high_rest) = ((low[cells], high[cells]) for low, high in (self.ready, self.rest))
        used = np.where(beside, own[held], 0.0).sum(axis=1) / statement.world
        taken = np.where(beside, room[held, self.range[cells][:, None]], 0.0).sum(axis=1) / statement.world
        found = np.full(len(cells), -np.inf)
        for ranks, more, size in ((free + beside.sum(axis=1), used, used), (free, -taken, taken)):
            worth, rest_worth = proof.ready * ranks / statement.world, proof.rest * ranks / statement.world
            value = selected + more
            value += np.minimum((1 - worth) * low, (1 - worth) * high)
            value += np.minimum((1 - rest_worth) * low_rest, (1 - rest_worth) * high_rest)
            size = selected + size + (1 + worth) * high + (1 + rest_worth) * high_rest
            found = np.maximum(found, value - SLACK * size)
        return found

    def _selected(self, price: Floats) -> float:
        """Lower bound on the cost of groups and of all other tables, by the tables' prices (T, G)."""
        statement, mode = self.statement, self.mode
        others = np.arange(len(price)) != mode.table
        least = np.where(self.plans.open, price, np.inf)[others]
        used: Bools = np.logical_or.reduce(np.isfinite(least), axis=0)
        used[mode.group] = False
        optional = np.flatnonzero(used).tolist()
        counts = range(len(optional) + 1) if len(optional) <= MOST_OPTIONAL else ()
        sets = [some for count in counts for some in combinations(optional, count)] or [None]

        def seconds(some: tuple[int, ...] | None) -> Fraction:
            """Lower bound for plans that use exactly these optional groups; None for all plans."""
            mine: Bools = np.isin(np.arange(len(used)), [mode.group, *(some or ())])
            total = fsum((least if some is None else least[:, mine]).min(axis=1).tolist())
            certain = statement.certain(self.plans.paid | mine)
            return Fraction(np.finfo(np.float64).max if total == np.inf else total) + certain

        return max(double_below(min(map(seconds, sets)) * (1 - Fraction(1, 2**50))), 0.0)

    def _room(self, price: Floats, beside: tuple[Floats, Floats]) -> Floats:
        """Upper bounds (n + 1, R) on the prices (N,) of other pieces on a rank with steps, up to each range's end."""
        taken, seconds = beside
        room = np.zeros((len(taken), len(self.ends)))
        for held in np.unique(self.held).tolist():
            left = at_least(np.maximum(self.ends - taken[held], 0.0), 1)
            order = np.argsort(seconds[held], kind="stable")
            ordered = seconds[held, order]
            worth = np.full(len(order), np.inf)
            np.divide(price[order], ordered, out=worth, where=ordered > 0)
            dearest = np.append(0.0, np.maximum.accumulate(at_least(worth, 1)))
            fitting = dearest[np.searchsorted(ordered, left, side="right")]
            room[held] = np.where((left > 0) & (fitting > 0), at_least(fitting * np.maximum(left, 1e-300), 1), 0.0)
        return room
