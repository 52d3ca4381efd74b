"""The least cost of tables within some limits, over every split of their columns: the left side of a bound.

The options of a problem hold a sample of all splits. Bounds must hold for every split, so under `widths any` the
cheapest split into multiples of 4 columns is found by dynamic programming: the cheapest cover of s width steps is one
piece, or the cheapest covers of i and of s - i steps side by side, with i at most s / 2. If the bytes of the split are
needed as well, it is a last piece of w steps next to the cheapest cover of s - w. It takes n additions of arrays of up
to n steps, so very wide tables get a lower bound instead, which takes n divisions: a cover costs no less than n times
the least cost of a step, which is that of a piece over its steps.

Legend: T tables, G fusion groups, m modes of one dim, n = dim / 4 width steps; cost[..., j] is of a piece of
(j + 1) * 4 columns, and inf if no such piece is allowed.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.compiled_prices import can_split, cheapest_splits
from recsmith.bounds.linear_bounds import ROUNDING, LinearBound, PieceTerms, SelectionLimits
from recsmith.bounds.relaxation import Choice, covered_bytes, shared_relaxation
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP

MOST_REMEMBERED = 20_000  # solutions kept for one dim; trade-off: memory against solving splits again in a bisection
MOST_STEPS = 1024  # most steps of 4 columns: wider tables get the bound of n divisions, which is seldom far below


@dataclass(frozen=True)
class Total:
    """Least totals over all tables at one limit and price: seconds, bytes, and seconds + price * bytes."""

    seconds: float
    bytes: float
    value: float


@dataclass(frozen=True)
class Least:
    """Per table (T,) the least value within some limits, and bytes and fusion group of the option or split that has it.

    everywhere: seconds of it that every rank carries. largest: seconds of its largest piece that does not span the
    world; 0 if the table is split.
    """

    value: Floats
    bytes: Floats
    group: Ints
    everywhere: Floats
    largest: Floats


class _SplitFamily:
    """The modes of one dim whose columns may be split at will: pieces of every width, and the cheapest splits."""

    seconds: Floats
    alone: Floats
    dearest: Floats
    _known: dict[tuple[float, int, bytes], tuple[float, float]]
    _costs: tuple[float, tuple[Floats, Floats, Floats]] | None

    def __init__(self, evaluator: Evaluator, modes: Ints, dim: int) -> None:
        problem = evaluator.problem
        steps = dim // WIDTH_STEP
        every_mode = np.repeat(modes, steps)
        widths = np.tile(WIDTH_STEP * (1 + np.arange(steps)), len(modes))
        head, tail = problem.least_memory(every_mode, widths)
        fits = problem.fits_alone(every_mode, head, tail) & problem.allowed(every_mode, widths)
        shape = (len(modes), steps)
        work = PieceTerms(evaluator, every_mode, widths)
        fits = fits.reshape(shape)
        size = covered_bytes(problem, every_mode, head, tail).reshape(shape)
        coverage = problem.modes.coverage[modes][:, None].astype(np.float64)
        key = np.stack([problem.modes.table[modes], evaluator.group[modes]], axis=1).astype(np.float64)
        terms, alone = work.terms.reshape(len(modes), -1), work.alone.reshape(shape)
        distinct = _distinct_rows(
            np.hstack([key, coverage, fits.astype(np.float64), np.where(fits, alone, 0.0), terms, size])
        )
        self.table, self.coverage = problem.modes.table[modes][distinct], coverage[distinct]
        self.group, self.bytes, self.fits = evaluator.group[modes][distinct], size[distinct], fits[distinct]
        of_distinct = (steps * distinct[:, None] + np.arange(steps)).ravel()
        self.work = work.of(of_distinct)

    def priced(self, linear: LinearBound) -> "_SplitFamily":
        """The same pieces with the prices of a linear bound."""
        other = copy(self)
        flat, alone = (each.reshape(self.fits.shape) for each in self.work.seconds(linear))
        other.seconds, other.alone = np.where(self.fits, flat, np.inf), np.where(self.fits, alone, 0.0)
        other.dearest = other.alone.max(axis=1, initial=0.0)
        other._known, other._costs = {}, None
        return other

    def cheapest(self, limit: float, price: float, rows: Ints) -> tuple[Floats, Floats]:
        """(least value, its bytes) of the splits of some modes into pieces of at most `limit` seconds.

        The result for a mode's set of allowed pieces is computed once, and remembered.
        """
        cost, allowed = self._cost(price)[0][rows], self.alone[rows] <= limit
        bits: list[bytes] = [each.tobytes() for each in np.packbits(allowed, 1)]
        keys = [(price, int(row), own) for row, own in zip(rows, bits, strict=True)]
        new = np.array([i for i, key in enumerate(keys) if key not in self._known], dtype=np.int64)
        if new.size:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
                return self.cheapest(limit, price, rows)
            found = least_cost_and_bytes(np.where(allowed[new], cost[new], np.inf), self.bytes[rows[new]])
            for i, least, size in zip(new, *found, strict=True):
                self._known[keys[i]] = float(least), float(size)
        value, size = np.array([self._known[key] for key in keys]).reshape(-1, 2).T
        return value, size

    def least(self, limit: float, price: float) -> Floats:
        """Lower bound (m,) on the cost of a mode's splits into pieces of at most `limit` seconds: by n divisions."""
        _, share, least = self._cost(price)
        limited = self.dearest > limit
        if limited.any():
            least = least.copy()
            least[limited] = np.where(self.alone[limited] <= limit, share[limited], np.inf).min(axis=1)
        return share.shape[1] * least

    def _cost(self, price: float) -> tuple[Floats, Floats, Floats]:
        """For pieces at a price of memory: their cost (m, n), that over their steps, and the least of these (m,)."""
        if self._costs is None or self._costs[0] != price:
            cost = self.coverage * self.seconds + price * self.bytes
            share = _cost_of_a_step(cost)
            self._costs = price, (cost, share, share.min(axis=1))
        return self._costs[1]


def _distinct_rows(rows: Floats) -> Ints:
    """The first of each set of equal rows, so that types of equal cost (column_wise on one host or any) count once."""
    return np.sort(np.array(list({row.tobytes(): i for i, row in reversed(list(enumerate(rows)))}.values())))


class TableTotals:
    """The least totals of a problem as a function of the limits, table by table or summed."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound | None = None) -> None:
        self.relaxation = shared_relaxation(evaluator, linear, barred=True)
        any_width = evaluator.problem.space.widths == "any"
        self.splits = _split_families(evaluator, self.relaxation.linear) if any_width else []

    def repriced(self, linear: LinearBound) -> "TableTotals":
        """The same tables with the prices of another linear bound, much faster than new totals."""
        other = copy(self)
        other.relaxation = self.relaxation.repriced(linear)
        other.splits = [family.priced(linear) for family in self.splits]
        return other

    def at(self, limits: SelectionLimits) -> Total:
        """The sums over all tables; infinite if a table has no option left."""
        choice = self.relaxation.choose(limits)
        value, size, _ = self._least(choice, limits)
        total, weight = float(value.sum()), float(size.sum())
        return Total(total - limits.price * weight if np.isfinite(total) else np.inf, weight, total)

    def per_table(self, limits: SelectionLimits) -> Least:
        """The least seconds + price * bytes of every table."""
        relaxation = self.relaxation
        choice = relaxation.choose(limits)
        worldwide = relaxation.option_worldwide[choice.option]
        everywhere = np.where(worldwide, relaxation.option_everywhere[choice.option], 0.0)
        largest = np.where(worldwide, 0.0, relaxation.option_largest[choice.option])
        group = relaxation.option_group[choice.option]
        value, size, split = self._least(choice, limits)
        for t, of_group in split:
            everywhere[t] = largest[t] = 0.0
            group[t] = of_group
        return Least(value, size, group, everywhere, largest)

    def _least(self, choice: Choice, limits: SelectionLimits) -> tuple[Floats, Floats, list[tuple[int, int]]]:
        """(least values (T,), their bytes (T,), the split tables, each with its group), from chosen options."""
        value, size, split = self._value(choice, limits), choice.bytes.copy(), list[tuple[int, int]]()
        for family in self.splits:
            limit = min(limits.limit, limits.local)
            may = family.least(limit, limits.price) < value[family.table] * (1 - ROUNDING)
            if limits.groups is not None:
                may &= limits.groups[family.group]
            if not may.any():  # mostly, whole tables are cheapest
                continue
            rows = np.flatnonzero(may)
            for i, split_value, split_bytes in zip(rows, *family.cheapest(limit, limits.price, rows), strict=True):
                t = family.table[i]
                if split_value < value[t] * (1 - ROUNDING):  # otherwise it is the option, summed in another order
                    value[t], size[t] = split_value, split_bytes
                    split.append((t, family.group[i]))
        return value, size, split

    def _value(self, choice: Choice, limits: SelectionLimits) -> Floats:
        """Seconds plus the price of bytes and the world penalty, of the option of every table."""
        if not limits.world_penalty:
            return choice.seconds + limits.price * choice.bytes
        spans = self.relaxation.option_worldwide[choice.option] & np.isfinite(choice.seconds)
        penalised = limits.world_penalty * np.where(spans, choice.seconds, 0.0)
        return choice.seconds + penalised + limits.price * choice.bytes

    def per_coverage(self, coverage: Ints) -> Floats:
        """The least seconds (T, C) of every table in modes that cover this many ranks (C, ascending); inf for none."""
        relaxation, problem = self.relaxation, self.relaxation.problem
        least: Floats = np.full((len(problem.tables), len(coverage)), np.inf)
        column = np.searchsorted(coverage, problem.modes.coverage[problem.options.mode])
        seconds = np.where(relaxation.option_fits, relaxation.option_seconds, np.inf)
        np.minimum.at(least, (problem.options.table, column), seconds)
        for family in self.splits:
            value, _ = family.cheapest(np.inf, 0.0, np.arange(len(family.table)))
            np.minimum.at(least, (family.table, np.searchsorted(coverage, family.coverage[:, 0].astype(int))), value)
        return least


def _split_families(evaluator: Evaluator, linear: LinearBound) -> list[_SplitFamily]:
    problem = evaluator.problem
    modes = np.flatnonzero(np.isin(problem.modes.type, SPLIT_AT_WILL))
    dims = problem.demand.dim[problem.modes.table[modes]]
    return [_SplitFamily(evaluator, modes[dims == dim], dim).priced(linear) for dim in distinct(dims).tolist()]


def least_cost(cost: Floats) -> Floats:
    """Least total cost (...) of covering n width steps with pieces of these costs (..., n); inf if no pieces can.

    Beyond MOST_STEPS it is a lower bound on that cost.
    """
    steps = cost.shape[-1]
    if steps > MOST_STEPS:
        return steps * _cost_of_a_step(cost).min(axis=-1)
    best = np.empty((steps + 1, cost.size // steps))  # steps first: the least of many rows is computed side by side
    best[0], best[1:] = 0.0, cost.reshape(-1, steps).T
    for filled in range(2, steps + 1):
        half = filled // 2
        pairs = best[1 : half + 1] + best[filled - 1 : filled - half - 1 : -1]
        np.minimum(best[filled], np.minimum.reduce(pairs, axis=0), out=best[filled])
    return best[steps].reshape(cost.shape[:-1])


def least_cost_and_bytes(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """(least total cost, the bytes of the split with this cost), both (m,), of pieces with costs and bytes (m, n).

    Among splits of equal cost, the one with the narrowest last piece is taken.
    """
    modes, steps = cost.shape
    if steps > MOST_STEPS:
        return _least_of_steps(cost, size)
    if can_split():
        return cheapest_splits(cost, size)
    best, weight, widest = np.zeros((modes, steps + 1)), np.zeros(modes), _widest(cost)
    for empty in range(steps - 1, -1, -1):  # best[:, empty] covers all steps but `empty`
        totals = cost[:, : steps - empty][:, :widest] + best[:, empty + 1 : empty + 1 + widest]
        np.minimum.reduce(totals, axis=1, out=best[:, empty])
    for mode in range(modes):
        empty = 0
        while empty < steps:
            last = int((cost[mode, : steps - empty] + best[mode, empty + 1 :]).argmin())
            weight[mode] += size[mode, last]
            empty += 1 + last
    return best[:, 0], weight


def _least_of_steps(cost: Floats, size: Floats) -> tuple[Floats, Floats]:
    """The bound of n divisions (m,), and the bytes of as many steps of its piece."""
    steps = cost.shape[1]
    share = _cost_of_a_step(cost)
    piece = share.argmin(axis=1)
    every_mode = np.arange(len(cost), dtype=np.int64)
    return steps * share[every_mode, piece], steps * size[every_mode, piece] / (1 + piece)


def _cost_of_a_step(cost: Floats) -> Floats:
    """Cost (..., n) of pieces divided by their steps."""
    return cost / np.arange(1.0, cost.shape[-1] + 1)


def _widest(cost: Floats) -> int:
    """Steps of the widest piece that any mode allows, at least 1."""
    return 1 + int(np.flatnonzero(np.isfinite(cost).any(axis=0)).max(initial=0))
