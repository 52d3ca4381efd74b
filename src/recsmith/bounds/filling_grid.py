"""A bound for few large pieces: the worth of a rank's fillings, for every time that the slowest rank may take.

If a rank holds one to three pieces, time is lost that no combination of pieces fills. So prices for shares of tables
are sought under which no filling of a rank is worth much, while all tables cost a lot: W ranks are worth at most W
times the best filling, and no plan avoids what the tables cost beyond that (docs/bounds.md).

The times of the slowest rank in the first phase, and in the later ones, are cells of a grid. One knapsack computes the
worth of the fillings of all cells, so prices sought for one cell apply to all. Again and again prices are sought for a
cell near the lowest, until every cell is above the plan or the lowest can be raised no more.

Legend: n shares, C different tables, G fusion groups, R and Q cells of the grid.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.filling_prices import FillingPrices
from recsmith.bounds.linear_bounds import ROUNDING
from recsmith.bounds.phase_nodes import PhaseNode
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.rank_shares import Items, Knapsack, RankShares

CELLS = 250, 30  # cells of the first grid: steps of the seconds in the first phase, and in the later ones
FINER = 2  # how often cells are halved in both phases, once the lowest can be raised no more
MOST_GROUPS = 6  # most groups of a problem: every set of them has a grid
MOST_NUMBERS = 30_000_000  # of a knapsack's notes, 8 bytes each: stages times cells, at most
MARGIN = 1.0001  # times the seconds that grids cover: above rounding errors
FIRST_PRICES = 20  # lowest nodes of the search before, whose prices are tried first
AIM = 0.5  # share of the gap of a bound that is aimed at in one cell
LITTLE = 0.015  # of the plan: a gap below this is aimed at as a whole
ROUNDS, LAST_ROUNDS = 30, 80  # rounds for a cell beyond the lowest, and for the lowest itself
BOX, LEAST_BOX, MOST_BOX = 0.3, 0.01, 1.0  # how far prices may move, as a share of each
FLOOR = 0.02  # of an even share of a rank: the least price from which a price's move is computed
CLOSE = 1e-3, 1e-8  # relative, and in seconds: if the linear programme promises no more than this, prices are the best
FAR_PRICE = 10.0  # times the seconds of a cell: the price of shares that do not fit its time
MOST_SCALE = 1e3  # largest factor by which prices are multiplied, or divided, if that raises a cell
SAFETY = 1e-12  # of the sums of prices: above their rounding errors


@dataclass
class _Groups:
    """Plans that use exactly these groups (G,): certain seconds, and what is known of each cell.

    beyond (R + 1, Q + 1): least seconds that tables cost beyond all ranks, by the prices with index `by` in the pool.
    floor: seconds of plans from the search before. within: sets of some of these groups, for which its prices also
    count.
    """

    groups: Bools
    certain: float
    beyond: Floats
    by: Ints
    floor: Floats
    box: float = BOX
    master: FillingPrices | None = None
    within: "list[_Groups]" = field(default_factory=list["_Groups"])


class FillingGrid:
    """The bound by a grid; call `solve` again to continue, until it is `done` or high enough."""

    def __init__(self, prices: TablePrices, nodes: Iterable[PhaseNode], below: float) -> None:
        """nodes: of a search of phase_branching.py, which together hold all plans of less than `below` seconds."""
        self.prices, self.shares, self.world, self.below = prices, RankShares(prices), prices.world, below
        self.nodes = sorted(nodes)
        self.done, self.rounds, self._is_left_out = False, 0, False
        self._reach = 1.0  # how far beyond the lowest cell prices are sought, as a share of what is aimed at
        self._pool: list[Floats] = []
        self._sets = list(self._sets_of_groups())
        if not self._sets:
            self.done = True
            return
        self.step_s, self.cells, self._finer = self._step_seconds(), CELLS, 0
        self.knapsack = Knapsack(self.shares, self.step_s, self.cells)
        for each in self._sets:
            self._begin(each)
        for node in self.nodes[:FIRST_PRICES]:
            multipliers = node.multipliers
            worth = multipliers.ready_multiplier * self.shares.ready + multipliers.rest_multiplier * self.shares.rest
            self._try(np.where(np.isfinite(worth), worth / self.world, FAR_PRICE * below), None, (0, 0))

    @property
    def bound(self) -> float:
        """Seconds that no plan of less than `below` undercuts; `below` if there is no such plan."""
        if self._is_left_out:
            return min((node.value for node in self.nodes), default=self.below)
        if not self._sets:
            return self.below
        return min(self.below, min(float(self._seconds(each).min()) for each in self._sets) * (1 - ROUNDING))

    def solve(self, rounds: int, enough: float = np.inf, keep_on: Callable[[], bool] = lambda: True) -> None:
        """Continue until `rounds` prices have been sought in all, the bound is high enough, or it can rise no more."""
        while not self.done and self.rounds < rounds and self.bound < min(enough, self.below) and keep_on():
            number, ready, rest = self._lowest()
            some = self._sets[number]
            low = float(self._seconds(some)[ready, rest])
            lacking = self.below - low
            aim = (AIM if lacking > LITTLE * self.below else 1.0) * lacking
            beyond = [int(aim * self._reach / 2 / step_s) for step_s in self.step_s]
            cell = min(self.cells[0], ready + beyond[0]), min(self.cells[1], rest + beyond[1])
            is_lowest = cell == (ready, rest)
            need = aim + max(float(some.beyond[ready, rest]), 0.0)
            raised = self._raise(some, cell, need, LAST_ROUNDS if is_lowest else ROUNDS, keep_on)
            if raised:
                self._reach = min(1.0, 1.5 * self._reach)
            elif not is_lowest:
                self._reach = self._reach / 2 if self._reach > 1 / 16 else 0.0
            elif raised is False and self._lowest() == (number, ready, rest):
                self._halve_cells()

    def _halve_cells(self) -> None:
        """Continue with cells of half the seconds; what is known of a cell also holds for its parts."""
        finer = 2 * self.cells[0] + 1, 2 * self.cells[1] + 1
        if self._finer == FINER or not self._has_room(finer):
            self.done = True
            return
        self._finer += 1
        self.step_s = self.step_s[0] / 2, self.step_s[1] / 2
        self.cells = finer
        self.knapsack = Knapsack(self.shares, self.step_s, self.cells)
        for each in self._sets:
            each.beyond, each.floor = _halved(each.beyond), _halved(each.floor)
            each.by = np.repeat(np.repeat(each.by, 2, axis=0), 2, axis=1)

    def _has_room(self, cells: tuple[int, int]) -> bool:
        """Whether the notes of a knapsack with this many cells fit in little memory."""
        return len(self.shares.stages()) * (cells[0] + 1) * (cells[1] + 1) <= MOST_NUMBERS

    def _sets_of_groups(self) -> Iterator[_Groups]:
        """Every set of groups that plans of less than `below` may use, and in which every table has a place."""
        shares, costs = self.shares, self.prices.costs
        placed = np.isfinite(shares.everywhere)
        placed[shares.table, shares.group] = True
        usable: list[int] = np.flatnonzero(np.logical_or.reduce(placed, axis=0)).tolist()
        self._is_left_out = len(usable) > MOST_GROUPS or not self._has_room(CELLS)
        if self._is_left_out:
            return
        for number in range(1, len(usable) + 1):
            for some in combinations(usable, number):
                groups: Bools = np.isin(np.arange(self.prices.groups), some)
                certain = costs.certain(groups)
                if placed[:, groups].any(axis=1).all() and certain < self.below:
                    none = np.zeros((0, 0))
                    yield _Groups(groups, certain, none, none.astype(np.int64), none)

    def _step_seconds(self) -> tuple[float, float]:
        """Seconds of a step of each phase, so that grids cover all plans of less than `below` seconds.

        If tables cost at least M by their seconds in one phase, the other phase takes less than `below` - M.
        """
        reach = [0.0, 0.0]
        for phase, seconds in enumerate((self.shares.ready, self.shares.rest)):
            price = np.where(np.isfinite(seconds), seconds / self.world, FAR_PRICE * self.below)
            local, _ = self.shares.cheapest(price)
            for each in self._sets:
                left = self.below - each.certain - self._tables(each, local, 1.0)
                reach[1 - phase] = max(reach[1 - phase], left)
        ready, rest = (max(MARGIN * each, self.below * CLOSE[0]) / cells
                       for each, cells in zip(reach, CELLS, strict=True))  # fmt: skip
        return ready, rest

    def _begin(self, each: _Groups) -> None:
        shape = tuple(cells + 1 for cells in self.cells)
        each.beyond, each.by = np.full(shape, -np.inf), np.full(shape, -1)
        each.floor = np.full(shape, np.inf)
        each.within = [some for some in self._sets if not (some.groups & ~each.groups).any()]
        for node in self.nodes:
            if (node.paid & ~each.groups).any() or not (node.open & each.groups).any(axis=1).all():
                continue
            ready, rest = (
                slice(int(low / step_s * (1 - ROUNDING)), int(min(high / step_s, cells)) + 1)
                for (low, high), step_s, cells in zip(
                    (node.ranges.ready, node.ranges.rest), self.step_s, self.cells, strict=True
                )
            )  # fmt: skip
            np.minimum(each.floor[ready, rest], node.value, out=each.floor[ready, rest])

    def _seconds(self, each: _Groups) -> Floats:
        """Seconds (R + 1, Q + 1) that no plan of these groups with its slowest rank in the cell can undercut."""
        ready, rest = (np.arange(cells + 1) * step_s for cells, step_s in zip(self.cells, self.step_s, strict=True))
        own = each.certain + ready[:, None] + rest + np.maximum(each.beyond, 0.0)
        return np.maximum(own, each.floor)

    def _lowest(self) -> tuple[int, int, int]:
        """The index of the set, and the cell, with the lowest bound."""
        seconds = [self._seconds(each) for each in self._sets]
        number = int(np.argmin([each.min() for each in seconds]))
        ready, rest = divmod(int(seconds[number].argmin()), self.cells[1] + 1)
        return number, ready, rest

    def _tables(self, each: _Groups, local: Floats, scale: float) -> float:
        """The least cost of all tables in these groups, with `scale` times local prices (C, G)."""
        return float((self._least(each, self.shares.everywhere, local, scale) * self.shares.copies).sum())

    def _least(self, each: _Groups, everywhere: Floats, local: Floats, scale: float) -> Floats:
        spread: Floats = np.where(each.groups, everywhere, np.inf).min(axis=1)
        return np.minimum(spread, scale * np.where(each.groups, local, np.inf).min(axis=1))

    def _try(self, price: Floats, at: _Groups | None, cell: tuple[int, int]) -> float:
        """Raise all cells as far as these prices (n,) allow; returns what tables cost beyond all ranks in one cell."""
        local, ways = self.shares.cheapest(price)
        self.knapsack.solve(price)
        scales, found = [1.0], -np.inf
        if at is not None:
            for way in ways:
                self._master(at).add_way(way)
            best, found = self._best_scale(at, local, float(self.knapsack.worth[cell]))
            scales += [best] * (best != 1.0)
        for scale in scales:
            self._pool.append(price * scale)
            for each in self._sets if at is None else at.within:
                tables, ranks = self._tables(each, local, scale), scale * self.world * self.knapsack.worth
                beyond = tables - ranks - SAFETY * (tables + ranks)
                higher = beyond > each.beyond
                each.beyond[higher], each.by[higher] = beyond[higher], len(self._pool) - 1
        return found

    def _best_scale(self, at: _Groups, local: Floats, worth: float) -> tuple[float, float]:
        """The factor on prices at which tables cost most beyond all ranks, and that cost."""
        spread = np.where(at.groups, self.shares.everywhere, np.inf).min(axis=1)
        own = np.where(at.groups, local, np.inf).min(axis=1)
        ratio = np.divide(spread, own, where=(own > 0) & np.isfinite(spread), out=np.ones(len(own)))
        scales = np.unique([1.0, MOST_SCALE, *np.clip(ratio, 1 / MOST_SCALE, MOST_SCALE).tolist()])
        tables = (np.minimum(spread[:, None], own[:, None] * scales) * self.shares.copies[:, None]).sum(axis=0)
        beyond = tables - scales * self.world * worth
        best = int(beyond.argmax())
        return float(scales[best]), float(beyond[best])

    # --- prices for one cell -----------------------------------------------------------------------------------------

    def _raise(
        self, at: _Groups, cell: tuple[int, int], need: float, rounds: int, keep_on: Callable[[], bool]
    ) -> bool | None:  # fmt: skip
        """Seek prices by which tables cost `need` seconds more than all ranks in a cell; False if there are none."""
        master, shares = self._master(at), self.shares
        own: Bools = at.groups[shares.group]
        fits: Bools = own & (self.knapsack.ready <= cell[0]) & (self.knapsack.rest <= cell[1])
        even = (cell[0] * self.step_s[0] + cell[1] * self.step_s[1]) / self.world
        for _ in range(rounds):
            if at.beyond[cell] >= need:
                return True
            if not keep_on():
                return None
            self.rounds += 1
            have = float(at.beyond[cell])
            known: Floats = self._pool[int(at.by[cell])]
            if not master.fit(fits, [self._has_time(filling, cell) for filling in master.fillings]):
                at.beyond[: cell[0] + 1, : cell[1] + 1] = np.inf  # some table has no place in so little time
                return True
            moved: Floats = at.box * np.maximum(known, FLOOR * even)
            low: Floats = np.maximum(known - moved, 0.0)
            high: Floats = known + moved
            found = master.solve(low, high, fits)
            if found is None:
                return None
            promised, price = found
            price = np.where(own, np.where(fits, price, np.maximum(known, FAR_PRICE * even)), 0.0)
            between = np.where(fits, (price + known) / 2, price)
            best = -np.inf
            for each in (price, between):
                best = max(best, self._try(each, at, cell))
                master.add_filling(self.knapsack.filling(*cell))
            edge: Bools = fits & ((price >= high) | ((price <= low) & (low > 0)))
            promises_no_more = promised - max(best, have) < CLOSE[0] * abs(promised) + CLOSE[1]
            if promises_no_more and not edge.any() and promised < need:
                at.box = BOX
                return False
            at.box = self._next_box(at.box, best, have, promised, promises_no_more)
        return None

    @staticmethod
    def _next_box(box: float, best: float, have: float, promised: float, promises_no_more: bool) -> float:
        """A wider box if prices kept what was promised, or if only the box is in the way; else a narrower one."""
        if promises_no_more:
            return min(4 * box, MOST_BOX)
        if best > have + 0.3 * (promised - have):
            return min(1.5 * box, MOST_BOX)
        return max(box / 2, LEAST_BOX) if best <= have else box

    def _has_time(self, filling: Items, cell: tuple[int, int]) -> bool:
        ready, rest = (sum(int(steps[share]) * count for share, count in filling)
                       for steps in (self.knapsack.ready, self.knapsack.rest))  # fmt: skip
        return ready <= cell[0] and rest <= cell[1]

    def _master(self, at: _Groups) -> FillingPrices:
        """The linear programme of these groups, made when it is first needed."""
        if at.master is None:
            at.master = FillingPrices(self.shares, self.world, at.groups[self.shares.group])
            for way in self.shares.first_ways():
                if at.groups[way.group]:
                    at.master.add_way(way)
        return at.master


def _halved(cells: Floats) -> Floats:
    """Cells (2 R, 2 Q) of half the seconds, with what is known of the cells (R, Q) that contain them."""
    return np.repeat(np.repeat(cells, 2, axis=0), 2, axis=1)
