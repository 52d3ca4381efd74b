"""A bound by every spread of the columns of one heavy table over the ranks.

If one table costs as much as many others, it is split by columns, and ranks that hold its pieces have little room left.
Prices of pieces (phase_prices.py) cannot distinguish such splits: by them the table is placed in a mean of several. A
*spread* states how many columns of the table each of some ranks holds. Then it is known what these ranks take at least,
whether they can hold anything else, and how much of the other ranks is left for all other tables. Plans that place the
table in another way, for example by rows, are left to phase_branching.py. docs/bounds.md proves it.

Legend: K multipliers side by side, C different tables, G fusion groups, J planes, N pieces of other tables, W ranks, n
width steps of the heavy table, S spreads, m the most ranks that hold columns of it, R ranges of `ready`.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import ROUNDING
from recsmith.bounds.phase_branching import CALL, GAIN, MultiplierAscent, PhaseBranching
from recsmith.bounds.phase_nodes import Multipliers, PhaseRanges
from recsmith.bounds.phase_prices import TablePrices, table_prices
from recsmith.bounds.split_table import SplitTable, split_tables
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct, matmul
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP

HEAVY = 0.2  # share of the cost of all tables: a lighter table is priced well enough by a mean of splits
MOST_SPREADS = 10_000  # most spreads of a table; 128 columns on 8 ranks have 5,000
MOST_PIECES = 100_000  # of all tables, times the width steps of the heavy one: the work of the setup
MOST_OPTIONAL = 4  # optional groups of a plan up to which all sets of them are distinguished
RANGES, NARROWER = 96, 1.5  # of `ready`; their ends are even shares to this power: closer together near the least
ASKED = 200  # lowest spreads that try multipliers which helped another spread
OPERATIONS = 200  # numbers that compiled code would work on in the time for one value of one rank
FIRST_STEP, LEAST_STEP = 0.5, 0.03  # relative change of multipliers, first and last
SHARES = ((1.0, 1.0), (0.0, 1.0), (0.5, 1.0), (1.0, 0.5))  # of multipliers for ready and rest, which are tried first
LEAST, LONG = 1e-12, 1e3  # seconds, less and more than any step takes
MOST_RECENT = 4  # multipliers of other spreads that are tried as well


def spreads_of(steps: int, seconds: Floats, most: float, ranks: int) -> list[tuple[int, ...]]:
    """All spreads of `steps` width steps over at most `ranks` ranks; a list longer than MOST_SPREADS if it gives up.

    seconds (n + 1,): seconds of a rank by the steps that it holds, of which `most` or more is too much.
    """
    open_ = (np.flatnonzero(seconds[1:] < most) + 1)[::-1].tolist()
    found: list[tuple[int, ...]] = []

    def add(left: int, widest: int, held: tuple[int, ...]) -> None:
        if left == 0:
            found.append(held)
        elif len(held) < ranks and len(found) <= MOST_SPREADS and left <= widest * (ranks - len(held)):
            for one in open_:
                if one <= left and one <= widest:
                    add(left - one, one, (*held, one))

    add(steps, steps, ())
    return found


class ColumnSpreads:
    """Bounds all plans that split the columns of the heavy table; call `go_on` until it is `done`, or high enough.

    value (S, R): seconds that no plan with this spread, and with `ready` in this range, can undercut.
    """

    value: Floats

    def __init__(
        self, prices: TablePrices, ascent: MultiplierAscent, start: Multipliers, modes: Sequence[SplitTable],
        spreads: Sequence[tuple[int, tuple[int, ...]]], below: float,
    ) -> None:  # fmt: skip
        """start: multipliers to begin with. modes: the heavy table's. spreads: (index of a mode, width steps on ranks).

        below: plans that take more seconds do not matter.
        """
        self.prices, self.ascent, self.below, self.modes = prices, ascent, below, modes
        self.others = prices.copies - (np.arange(len(prices.copies)) == modes[0].table)
        self.recent, self.done = [start], False
        self.open: Bools = np.ones((1, prices.groups), dtype=bool)
        self.multipliers: dict[tuple[int, int], tuple[Multipliers, float]] = {}  # with the size of their next change
        self.tried: list[Multipliers] = []
        self._set_spreads(spreads)
        self.raised_by: Ints = np.full(self.value.shape, -1)  # index in `tried` of what gave each value (S, R)

    def _set_spreads(self, spreads: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        most = max((len(held) for _, held in spreads), default=0)
        self.mode: Ints = np.array([mode for mode, _ in spreads], dtype=np.int64)
        held = [(*each, *[0] * (most - len(each))) for _, each in spreads]
        self.held: Ints = np.array(held, dtype=np.int64).reshape(len(spreads), most)
        self.free: Ints = self.prices.world - (self.held > 0).sum(axis=1)
        ready = self._of_held([each.ready for each in self.modes]).max(axis=1, initial=0.0)
        self.rest = self._of_held([each.rest for each in self.modes])
        self.crowded = np.where(self.held > 0, self._of_held([each.crowded for each in self.modes]), np.inf)
        self.least_rest: Floats = self.rest.max(axis=1, initial=0.0)
        certain = np.array([self._certain(each) for each in self.modes])[self.mode]
        low, high = ready.min(initial=self.below), self.below - certain.min(initial=0.0)
        self.ends: Floats = low + (high - low) * np.linspace(0, 1, RANGES + 1) ** NARROWER
        self.low: Floats = np.maximum(self.ends[:-1], ready[:, None])
        self.most_rest: Floats = np.maximum(self.below - certain[:, None] - self.low, self.least_rest[:, None])
        self.value = certain[:, None] + self.low + self.least_rest[:, None]
        self.value[self.ends[1:] < ready[:, None]] = np.inf

    @property
    def bound(self) -> float:
        """Seconds that none of these plans can undercut; infinite if none of them is below the limit that matters."""
        return float(self.value.min(initial=np.inf))

    def go_on(self) -> None:
        """Raise the lowest value, or set `done` if it cannot be raised."""
        spread, range_ = place = divmod(int(self.value.argmin()), RANGES)
        before = self.value[place]
        known = self.multipliers.get(place)
        if known is None:
            tried, step = self._first(spread), 2 * FIRST_STEP
        else:
            tried, step = [*self.ascent.changes(known[0], known[1], self.open), *self.recent], known[1]
        least = self._least(tried)
        values = self._values(tried, least, np.array([spread]))[:, 0]
        best = int(values[:, range_].argmax())
        self._raise(np.array([spread]), values[:, None], tried)
        if self.value[place] - before > GAIN * before:
            self._tell(tried[best], least[best : best + 1])
        else:
            step /= 2
        self.multipliers[place] = tried[best], step if known else FIRST_STEP
        self.done = step < LEAST_STEP

    def _first(self, spread: int) -> list[Multipliers]:
        """Multipliers to try first: those of other spreads, and some so high that ranks without the table carry all."""
        busy = self.prices.world / max(1, int(self.free[spread]))
        return [*self.recent, *(
            each._replace(ready_multiplier=busy * a, rest_multiplier=busy * b)
            for each in (self.recent[0], self.recent[-1]) for a, b in SHARES
        )]  # fmt: skip

    def _tell(self, multipliers: Multipliers, least: Floats) -> None:
        """Try multipliers on the lowest spreads, and keep them for other spreads to try."""
        lowest = self.value.min(axis=1)
        spreads = np.argsort(lowest, kind="stable")[:ASKED]
        self._raise(spreads, self._values([multipliers], least, spreads), [multipliers])
        self.recent = [self.recent[0], *[*self.recent[1:], multipliers][-MOST_RECENT:]]

    def _raise(self, spreads: Ints, values: Floats, tried: Sequence[Multipliers]) -> None:
        """Raise the values of some spreads to those found (K, S, R), and record the multipliers that gave them."""
        best, now = values.argmax(axis=0), self.value[spreads]
        highest = values.max(axis=0)
        self.raised_by[spreads] = np.where(highest > now, len(self.tried) + best, self.raised_by[spreads])
        self.value[spreads] = np.maximum(now, highest)
        self.tried += tried

    @property
    def proofs(self) -> list[Multipliers]:
        """The multipliers that gave the values, those of the most values first."""
        numbers, count = np.unique(self.raised_by[self.raised_by >= 0], return_counts=True)
        return [self.tried[number] for number in numbers[np.argsort(-count, kind="stable")].tolist()]

    # --- what plans cost by multipliers ---------------------------------------------------------------------------

    def _of_held(self, of_steps: Sequence[Floats]) -> Floats:
        """Values (S, m) of the steps that ranks hold, looked up in each mode's values by number of steps (n + 1,)."""
        return np.stack(of_steps)[self.mode[:, None], self.held]

    def _certain(self, mode: SplitTable, more: Sequence[int] = ()) -> float:
        """The least cost of the groups that a plan uses."""
        return self.prices.costs.certain(np.isin(np.arange(self.prices.groups), [mode.group, *more]))

    def _least(self, tried: Sequence[Multipliers]) -> Floats:
        """Least prices (K, C, G) of different tables, with no piece counted as big."""
        everything: Bools = np.ones((len(tried), self.prices.groups), dtype=bool)
        ranges = [PhaseRanges((0.0, 2 * self.below), (0.0, 2 * self.below))] * len(tried)
        self.ascent.work += CALL + len(tried) * self.prices.numbers
        return self.prices.least(ranges, tried, everything, ~everything)[0]

    def _values(self, tried: Sequence[Multipliers], least: Floats, spreads: Ints) -> Floats:
        """Bounds (K, S, R) of some spreads by multipliers, under which tables have these least prices."""
        values = np.empty((len(tried), len(spreads), RANGES))
        self.ascent.work += OPERATIONS * values.size * self.held.shape[1]
        for number, mode in enumerate(self.modes):
            mine = self.mode[spreads] == number
            if mine.any():
                values[:, mine] = self._selected(mode, least)[:, None, None] + self._left(mode, tried, spreads[mine])
        return values * (1 - ROUNDING)

    def _selected(self, mode: SplitTable, least: Floats) -> Floats:
        """The least cost (K,) of groups and of all other tables."""
        least, copies = least[:, self.others > 0], self.others[self.others > 0]
        optional = [each for each in np.flatnonzero(np.isfinite(least).any(axis=(0, 1))).tolist() if each != mode.group]
        if len(optional) > MOST_OPTIONAL:
            return matmul(least.min(axis=2), copies) + self._certain(mode)
        return np.min([
            matmul(least[:, :, [mode.group, *some]].min(axis=2), copies) + self._certain(mode, some)
            for count in range(len(optional) + 1) for some in combinations(optional, count)
        ], axis=0)  # fmt: skip

    def _left(self, mode: SplitTable, tried: Sequence[Multipliers], spreads: Ints) -> Floats:
        """The least (K, S, R) of the seconds of both phases, minus the prices that all ranks have room for.

        Ranks without the table carry prices up to the worth of their seconds. What the ranks with the table carry
        besides has three limits, and the one with the highest result is used: the worth of their seconds minus what the
        table takes; and what is left of `ready` by a plane, times the highest price per second of any piece, or of the
        pieces that fit.
        """
        worth: Floats = np.array([[each.ready_multiplier, each.rest_multiplier] for each in tried]) / self.prices.world
        ready, rest = worth.T[:, :, None, None]
        mix = np.stack([each.mix for each in tried])
        held, free = self.held[spreads], self.free[spreads][:, None]
        beside = self.crowded[spreads][:, :, None] <= self.ends[1:]  # (S, m, R)
        number = beside.sum(axis=1)

        def least(ready_worth: Floats, rest_worth: Floats, used: Floats) -> Floats:
            low, low_rest = self.low[spreads], self.least_rest[spreads][:, None]
            high, high_rest = np.maximum(self.ends[1:], low), self.most_rest[spreads]
            return (
                np.minimum((1 - ready_worth) * low, (1 - ready_worth) * high)
                + np.minimum((1 - rest_worth) * low_rest, (1 - rest_worth) * high_rest)
                + used
            )

        def used(of_steps: Floats) -> Floats:  # (K, n + 1) or (n + 1,), of the ranks that other tables use as well
            return np.einsum("...sm,smr->...sr", of_steps[..., held], beside.astype(np.float64))

        found = least(ready * (free + number), rest * (free + number),
                      ready * used(mode.taken(mix[:, mode.group])) + rest * used(mode.rest))  # fmt: skip
        if not number.any():
            return found
        price = worth[:, :1] * mode.seconds_beside(mix) + worth[:, 1:] * mode.rest_beside
        for plane, dearest in enumerate(mode.dearest(price).T[:, :, None, None]):
            if np.isfinite(dearest).all():
                other = least(ready * free + dearest * number, rest * free, dearest * used(mode.by_plane[plane]))
                found = np.maximum(found, other)
        most = mode.most_beside(price, self.ends[1:], distinct(held).tolist())[:, held]  # (K, S, m, R)
        return np.maximum(found, least(ready * free, rest * free, -np.where(beside, most, 0.0).sum(axis=2)))


class HeavyTableBound:
    """Two cases: the columns of the heaviest table are spread over ranks, or it is placed in another way."""

    def __init__(self, spreads: ColumnSpreads, other: PhaseBranching) -> None:
        self.spreads, self.other, self.done = spreads, other, False

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut; infinite if no plan is below the limit that matters."""
        return min(self.spreads.bound, self.other.bound)

    def promising(self, most: int) -> list[tuple[int, tuple[int, ...]]]:
        """The spreads with the lowest bounds, `most` at most: the problem's mode, and the width steps on ranks."""
        spreads, found = self.spreads, list[tuple[int, tuple[int, ...]]]()
        for each in np.argsort(spreads.value.min(axis=1), kind="stable")[:most].tolist():
            held = spreads.held[each]
            found.append((spreads.modes[int(spreads.mode[each])].mode, tuple(held[held > 0].tolist())))
        return found

    @property
    def work(self) -> int:
        """Numbers worked on so far, approximately; the same on every machine."""
        return self.spreads.ascent.work + self.other.work

    def solve(self, work: int, enough: float = np.inf) -> None:
        """Raise the lower of both cases until the bound reaches `enough`, or `work` numbers have been worked on."""
        while self.work < work and not self.done and self.bound < enough:
            if self.spreads.bound <= self.other.bound:
                self.spreads.go_on()
                self.done = self.spreads.done
            else:
                self.other.solve(work - self.spreads.ascent.work, min(enough, self.spreads.bound))
                self.done = self.other.done


def heavy_table_bound(
    evaluator: Evaluator, dominated: Bools, below: float, mix: Floats | None
) -> HeavyTableBound | None:
    """The search over the spreads of the costliest table; None if it has too many, or if other tables are like it.

    dominated: groups (G,) that a best plan can do without. below: plans that take more seconds do not matter. mix (G,
    J): shares of the planes in a bound found before.
    """
    rule, widths = evaluator.step_rule, evaluator.problem.space.widths
    if evaluator.bends or not rule.several_phases or widths != "any" or evaluator.problem.cluster.world_size == 1:
        return None
    prices = table_prices(evaluator, dominated)
    table, share = _heaviest(prices)
    groups = _split_groups(evaluator, prices, table) & ~dominated
    steps = int(evaluator.problem.demand.dim[prices.tables[table]]) // WIDTH_STEP
    if share < HEAVY or prices.copies[table] > 1 or not groups.any() or steps * len(prices.pieces.fits) > MOST_PIECES:
        return None
    other = PhaseBranching(evaluator, dominated=dominated, below=below, byte_price=0.0, mix=mix, prices=prices,
                           closed=(table, groups))  # fmt: skip
    modes = split_tables(evaluator, prices, table, groups, below)
    spreads = list[tuple[int, tuple[int, ...]]]()
    for number, mode in enumerate(modes):
        most = below - prices.costs.certain(np.arange(prices.groups) == mode.group)
        spreads += [(number, held) for held in spreads_of(steps, mode.ready + mode.rest, most, prices.world)]
        if len(spreads) > MOST_SPREADS:
            return None
    ascent = MultiplierAscent(prices, 0.0, other.ascent.always)
    return HeavyTableBound(ColumnSpreads(prices, ascent, other.start, modes, spreads, below), other)


def _heaviest(prices: TablePrices) -> tuple[int, float]:
    """(the different table that costs most by the mean of the planes, its share of the cost of all tables)."""
    planes, every = len(prices.planes.opening), np.ones((1, prices.groups), dtype=bool)
    mean = Multipliers(1.0, 1.0, 0.0, np.full((prices.groups, planes), 1 / planes), 0)
    least, _ = prices.least([PhaseRanges((0.0, LONG), (0.0, LONG))], [mean], every, ~every)
    cheapest = least[0].min(axis=1)
    table = int(cheapest.argmax())
    return table, float(cheapest[table]) / max(float((cheapest * prices.copies).sum()), LEAST)


def _split_groups(evaluator: Evaluator, prices: TablePrices, table: int) -> Bools:
    """Groups (G,) in which a different table has only pieces of any width on single ranks."""
    modes = evaluator.problem.modes
    mine = np.flatnonzero(modes.table == prices.tables[table])
    at_will: Bools = np.isin(modes.type[mine], SPLIT_AT_WILL) & (modes.coverage[mine] == 1)
    split: Bools = np.zeros(prices.groups, dtype=bool)
    split[evaluator.group[mine[at_will]]] = True
    split[evaluator.group[mine[~at_will]]] = False
    return split
