"""What one rank can hold: shares of tables, the worth of fillings made of them, and how tables are made of shares.

A share is a table's part on one rank: columns in one fusion group, or a piece of a host. A filling is a set of shares
that a rank has time for, in the first phase and in the later ones. With a price for every share, the fillings of a rank
have a largest worth (a knapsack), and every table costs at least its cheapest combination of shares (filling_grid.py
makes a bound of that).

Seconds are counted in whole steps, rounded down, so that no filling that fits is left out.

Legend: C different tables, G fusion groups, n shares, J planes, m modes, S stages of the knapsack, R and Q steps of
seconds in the first phase and in the later ones.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.phase_prices import LocalPieces, TablePrices

CODE = "bounds._fillings"
SHRUNK = 1 - 1e-9  # factor on seconds, before they are rounded down to whole steps
NEVER = 1 << 40  # steps of a share that fits no rank

Items = tuple[tuple[int, int], ...]  # (share, number of it) pairs


class TableWay(NamedTuple):
    """A way to place a table: its shares, or its seconds on every rank if it spans the world."""

    table: int
    group: int
    shares: Items
    seconds: float = 0.0


class RankShares:
    """The shares (n,) of the different tables of a problem: what each takes of every rank that it covers.

    table, group: of each; ready, rest: seconds in the first phase, by a mix of planes, and in the later ones; size:
    ranks that it covers. everywhere (C, G): seconds of the cheapest option that spans the world.
    """

    def __init__(self, prices: TablePrices) -> None:
        self.copies, pieces = prices.copies, prices.pieces
        tables, groups = len(prices.copies), prices.groups
        mix = prices.mix(np.ones(groups, dtype=bool))
        seconds = np.einsum("nj,nj->n", pieces.ready, mix[pieces.group])
        self.everywhere = np.full((tables, groups), np.inf)
        spread = np.einsum("oj,oj->o", prices.worldwide, mix[prices.worldwide_group])
        keys = prices.worldwide_key
        np.minimum.at(self.everywhere, (keys // groups, keys % groups), spread)
        self._columns: list[tuple[Ints, int]] = []  # first shares of modes (m,) and their number of width steps
        rows: list[Ints] = []
        least: list[tuple[Floats, Floats]] = []
        made = 0
        for family in pieces.families:
            rows.append(family.ravel())
            fits = pieces.fits[family]
            least.append((_closed(np.where(fits, seconds[family], np.inf)),
                          _closed(np.where(fits, pieces.rest[family], np.inf))))  # fmt: skip
            self._columns.append((made + family.shape[1] * np.arange(len(family)), family.shape[1]))
            made += family.size
        self.options, options = _options(pieces, made)
        row: Ints = np.concatenate([*rows, options])
        self.table, self.group, self.size = pieces.table[row], pieces.group[row], pieces.size[row]
        self.ready = np.concatenate([*(ready.ravel() for ready, _ in least), seconds[options]])
        self.rest = np.concatenate([*(rest.ravel() for _, rest in least), pieces.rest[options]])
        self.splittable = made  # earlier shares are columns of a table, later ones pieces of options

    def __len__(self) -> int:
        return len(self.table)

    def stages(self) -> list[Ints]:
        """Sets of shares of which a rank holds at most one each: all columns of a table, once for each table like it.

        Several pieces of an option may be on one rank, so each piece has its own stage.
        """
        columns, most = self.table[: self.splittable], defaultdict[int, int](int)
        stages = [np.flatnonzero(columns == table) for table in np.repeat(np.arange(len(self.copies)), self.copies)]
        for way in self.options:
            for share, count in way.shares:
                most[share] = max(most[share], count * int(self.copies[way.table]))
        stages += [np.array([share]) for share, count in most.items() for _ in range(count)]
        return [stage for stage in stages if len(stage)]

    def first_ways(self) -> Iterator[TableWay]:
        """Options, and splits into every number of shares of columns of equal width, up to one step."""
        for table, group in np.argwhere(np.isfinite(self.everywhere)).tolist():
            yield TableWay(table, group, (), float(self.everywhere[table, group]))
        yield from self.options
        for firsts, steps in self._columns:
            for first in firsts.tolist():
                for count in range(1, steps + 1):
                    width, wider = divmod(steps, count)
                    items = ((first + width - 1, count - wider), *(((first + width, wider),) if wider else ()))
                    yield self._way(first, items)

    def cheapest(self, price: Floats) -> tuple[Floats, list[TableWay]]:
        """The least cost of each table in each group (C, G) by the prices of shares (n,), and ways with that cost."""
        least = np.full(self.everywhere.shape, np.inf)
        best: dict[tuple[int, int], TableWay] = {}
        worth = price * self.size
        for way in self.options:
            cost, at = sum(worth[share] * count for share, count in way.shares), (way.table, way.group)
            if cost < least[at]:
                least[at], best[at] = cost, way
        for firsts, steps in self._columns:
            costs, last = _covered(price[firsts[:, None] + np.arange(steps)])
            for number, first in enumerate(firsts.tolist()):
                at = int(self.table[first]), int(self.group[first])
                if costs[number] < least[at]:
                    least[at], best[at] = costs[number], self._way(first, _followed(last[:, number], first))
        return least, list(best.values())

    def _way(self, first: int, items: Items) -> TableWay:
        return TableWay(int(self.table[first]), int(self.group[first]), items)


def _options(pieces: LocalPieces, made: int) -> tuple[list[TableWay], Ints]:
    """Options whose columns are not split at will, as ways; and the pieces of their shares, numbered from `made` on."""
    number = dict[int, int]()
    ways: list[TableWay] = []
    for row, counts in zip(pieces.whole.tolist(), pieces.count.tolist(), strict=True):
        used = [(piece, int(count)) for piece, count in zip(row, counts, strict=True) if count > 0]
        if used and all(pieces.fits[piece] for piece, _ in used):
            items = tuple((number.setdefault(piece, made + len(number)), count) for piece, count in used)
            ways.append(TableWay(int(pieces.table[row[0]]), int(pieces.group[row[0]]), items))
    return ways, np.array(list(number), dtype=np.int64)


def _closed(cost: Floats) -> Floats:
    """The least cost (m, n) of each number of width steps on one rank, in one piece or in several."""
    least = cost.copy()
    for steps in range(2, least.shape[1] + 1):
        some = np.arange(steps // 2)
        both = (least[:, some] + least[:, steps - 2 - some]).min(axis=1)
        least[:, steps - 1] = np.minimum(least[:, steps - 1], both)
    return least


def _covered(cost: Floats) -> tuple[Floats, Ints]:
    """The least cost (m,) of all width steps by shares of cost (m, n), and the last share of each number (n + 1, m)."""
    modes, steps = cost.shape
    best, last = np.zeros((steps + 1, modes)), np.zeros((steps + 1, modes), dtype=np.int64)
    one = np.ascontiguousarray(cost.T)
    for filled in range(1, steps + 1):
        tried = one[:filled] + best[filled - 1 :: -1][:filled]
        which = tried.argmin(axis=0)
        best[filled], last[filled] = tried[which, np.arange(modes)], which + 1
    return best[steps], last


def _followed(last: Ints, first: int) -> Items:
    """The shares that the last share of each number of width steps (n + 1,) leads to; first: index of the narrowest."""
    count, left = defaultdict[int, int](int), len(last) - 1
    while left:
        count[first + int(last[left]) - 1] += 1
        left -= int(last[left])
    return tuple(sorted(count.items()))


class Knapsack:
    """The largest worth of the shares that one rank has time for, for every time up to R and Q steps at once.

    ready, rest (n,): steps of each share.
    """

    def __init__(self, shares: RankShares, step_s: tuple[float, float], most: tuple[int, int]) -> None:
        """step_s: seconds of a step in the first phase, and in the later ones. most: R and Q."""
        self.most = most
        self.ready, self.rest = (_steps(seconds, each) for seconds, each in
                                 zip((shares.ready, shares.rest), step_s, strict=True))  # fmt: skip
        fits = (self.ready <= most[0]) & (self.rest <= most[1])
        stages = [stage[fits[stage]] for stage in shares.stages()]
        self._stages = [stage for stage in stages if len(stage)]
        self._shares = np.concatenate([*self._stages, np.zeros(0, dtype=np.int64)])
        self._starts = np.cumsum([0, *(len(stage) for stage in self._stages)])
        shape = (most[0] + 1, most[1] + 1)
        self._before, self.worth = np.zeros(shape), np.zeros(shape)
        self._taken = np.zeros((len(self._stages), *shape), dtype=np.int64)

    @property
    def numbers(self) -> int:
        """Numbers that one call works on, roughly."""
        return len(self._shares) * self.worth.size

    def solve(self, price: Floats) -> None:
        """Compute `worth` (R + 1, Q + 1) from these prices of shares (n,)."""
        if compiled(CODE) is None:
            self._solve(price)
            return
        sizes, own = np.array(self.most), self._shares
        call_compiled(
            compiled(CODE).worth,
            (sizes, self._starts, self.ready[own], self.rest[own], price[own], self._before, self.worth, self._taken),
        )  # fmt: skip

    def _solve(self, price: Floats) -> None:
        """Like `solve`, by array operations."""
        self.worth[:], self._taken[:] = 0.0, 0
        ready_steps, rest_steps = self.most
        for stage, taken in zip(self._stages, self._taken, strict=True):
            before = self.worth.copy()
            for number, share in enumerate(stage.tolist(), 1):
                ready, rest = int(self.ready[share]), int(self.rest[share])
                if not price[share] > 0:
                    continue
                with_it = before[: ready_steps + 1 - ready, : rest_steps + 1 - rest] + price[share]
                more: Bools = with_it > self.worth[ready:, rest:]
                self.worth[ready:, rest:][more] = with_it[more]
                taken[ready:, rest:][more] = number

    def filling(self, ready: int, rest: int) -> Items:
        """The shares of the filling with the largest worth in this many steps of seconds."""
        count = defaultdict[int, int](int)
        for stage, taken in zip(reversed(self._stages), reversed(self._taken), strict=True):
            if number := int(taken[ready, rest]):
                share = int(stage[number - 1])
                count[share] += 1
                ready, rest = ready - int(self.ready[share]), rest - int(self.rest[share])
        return tuple(sorted(count.items()))


def _steps(seconds: Floats, step_s: float) -> Ints:
    """Whole steps in these seconds (n,), rounded down."""
    steps = np.full(len(seconds), NEVER)
    fits = seconds < NEVER * step_s
    steps[fits] = np.floor(seconds[fits] / step_s * SHRUNK)
    return steps
