"""A bound for additive cost models: no plan of the space costs less.

Let z be the step time of any plan. No piece costs more than z, and all pieces together cost at most W * z. So

    sum over tables of (least total among options with pieces <= z that fit a device)  <=  W * z,

and with any price p >= 0 on device bytes, since all bytes together fit all devices,

    sum over tables of (least total + p * bytes)  -  p * (capacity of all devices)  <=  W * z.

The left side can only fall as z grows; the smallest z that satisfies both is the bound. It accounts for mean load, for
the largest piece that cannot be split, and for memory at once. Under `widths any` the least total is taken over
every split into multiples of 4 (costs/partitions.py), not only over the options that planners try.

Legend: T tables, W ranks, m modes of one dim, n = dim / 4 width steps.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs._base import Evaluator, piece_seconds
from recsmith.costs.partitions import cheapest_partition
from recsmith.costs.relaxation import Relaxation, covered_bytes, fits_alone, fitting_price
from recsmith.plans import Bound
from recsmith.problems import Problem
from recsmith.sharding import SHARDING_TYPES, WIDTH_STEP

TOLERANCE = 1e-9  # of the bisections; rounding of sums is far below it
MOST_STEPS = 60


@dataclass(frozen=True)
class Total:
    """Least totals over all tables at one limit and price: seconds, bytes, and seconds + price * bytes."""

    seconds: float
    bytes: float
    value: float


class _Splits:
    """All pieces of every width of the modes of one dim, and their cheapest partitions."""

    def __init__(self, evaluator: Evaluator, modes: Ints, dim: int, least_width: int) -> None:
        problem = evaluator.problem
        steps = dim // WIDTH_STEP
        every_mode = np.repeat(modes, steps)
        widths = np.tile(WIDTH_STEP * (1 + np.arange(steps)), len(modes))
        head, tail = problem.memory(every_mode, widths)
        fits = fits_alone(problem, every_mode, head, tail) & (widths >= min(least_width, dim))
        shape = (len(modes), steps)
        seconds = np.where(fits, piece_seconds(evaluator, every_mode, widths), np.inf).reshape(shape)
        size = covered_bytes(problem, every_mode, head, tail).reshape(shape)
        coverage = problem.modes.coverage[modes][:, None].astype(np.float64)
        unlike = _first_of_kind(
            np.hstack([problem.modes.table[modes][:, None].astype(np.float64), coverage, seconds, size])
        )
        self.table, self.coverage = problem.modes.table[modes][unlike], coverage[unlike]
        self.seconds, self.bytes = seconds[unlike], size[unlike]
        self.dearest = np.where(np.isfinite(self.seconds), self.seconds, 0.0).max(axis=1, initial=0.0)
        self._kept: dict[float, tuple[Floats, Floats]] = {}

    def cheapest(self, limit: float, price: float) -> tuple[Floats, Floats]:
        """(least value, its bytes) (m,) of each mode's partitions into pieces of at most `limit` seconds."""
        if price not in self._kept:
            self._kept = {price: self._solve(np.arange(len(self.table)), np.inf, price)}
        value, size = self._kept[price]
        limited = np.flatnonzero(self.dearest > limit)
        if not limited.size:
            return value, size
        value, size = value.copy(), size.copy()
        value[limited], size[limited] = self._solve(limited, limit, price)
        return value, size

    def _solve(self, rows: Ints, limit: float, price: float) -> tuple[Floats, Floats]:
        seconds, size = self.seconds[rows], self.bytes[rows]
        allowed = np.isfinite(seconds) & (seconds <= limit)
        return cheapest_partition(np.where(allowed, self.coverage[rows] * seconds + price * size, np.inf), size)


def _first_of_kind(rows: Floats) -> Ints:
    """The first of each set of equal rows: types that price alike (column_wise on one host or on any) count once."""
    return np.sort(np.array(list({row.tobytes(): i for i, row in reversed(list(enumerate(rows)))}.values())))


class TableTotals:
    """The left side of the bound, as a function of limit and price, table by table or summed."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.relaxation = Relaxation(evaluator, barred=True)
        self.splits = list(_split_families(evaluator)) if evaluator.problem.space.widths == "any" else []

    def at(self, limit: float, price: float) -> Total:
        """The sums over all tables; infinite where a table has no option left."""
        value, size = self.per_table(limit, price)
        total, weight = float(value.sum()), float(size.sum())
        return Total(total - price * weight if np.isfinite(total) else np.inf, weight, total)

    def per_table(self, limit: float, price: float) -> tuple[Floats, Floats]:
        """(least seconds + price * bytes, the bytes) (T,)."""
        choice = self.relaxation.choose(limit, price)
        value, size = choice.seconds + price * choice.bytes, choice.bytes.copy()
        for family in self.splits:
            split_value, split_bytes = family.cheapest(limit, price)
            for i in np.flatnonzero(split_value < value[family.table]):  # few: whole tables are mostly cheapest
                t = family.table[i]
                if split_value[i] < value[t]:
                    value[t], size[t] = split_value[i], split_bytes[i]
        return value, size


def _split_families(evaluator: Evaluator) -> list[_Splits]:
    problem = evaluator.problem
    splitting = np.isin(problem.modes.type, [i for i, kind in enumerate(SHARDING_TYPES) if kind.splits_columns])
    modes = np.flatnonzero(splitting)
    dims, limits = problem.demand.dim[problem.modes.table[modes]], problem.least_width[problem.modes.table[modes]]
    keys = {(int(dim), int(limit)) for dim, limit in zip(dims, limits, strict=True)}
    return [_Splits(evaluator, modes[(dims == dim) & (limits == limit)], dim, limit) for dim, limit in sorted(keys)]


def additive_bound(evaluator: Evaluator) -> Bound:
    """The bound of an additive evaluator over its problem's space (see the module)."""
    problem = evaluator.problem
    totals = TableTotals(evaluator)
    world, room = problem.cluster.world_size, float(problem.capacity.sum())
    value = _least_limit(totals, 0.0, world, room)
    at_value = totals.at(value, 0.0) if value is not None else None
    if value is not None and at_value is not None and at_value.bytes > room:
        at = value
        price = fitting_price(lambda p: totals.at(at, p), room)
        value = max(value, _least_limit(totals, price, world, room) or value)
    kind = "additive: mean load, largest piece, memory"
    return Bound(value_s=value, kind=kind, space=describe_space(problem))


def describe_space(problem: Problem) -> str:
    """The words of the space that a bound holds for."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    rules = f"; {len(problem.constraints.rules)} table rules" if problem.constraints.rules else ""
    return f"{problem.space.describe()}; memory {problem.constraints.memory}{exact}{rules}"


def _least_limit(totals: TableTotals, price: float, world: int, room: float) -> float | None:
    """The smallest z with totals(z) - price * room <= world * z; None where tables fit no device at all."""

    def needed(limit: float) -> float:
        return (totals.at(limit, price).value - price * room) / world

    low = needed(np.inf)
    if not np.isfinite(low):
        return None
    low = max(low, 0.0)
    if needed(low) <= low * (1 + TOLERANCE):
        return low * (1 - TOLERANCE)
    step = 1e-6
    high = low * (1 + step) if low > 0 else 1e-12
    while needed(high) > high:
        low, step = high, step * 4
        high *= 1 + step
    for _ in range(MOST_STEPS):
        if high - low <= TOLERANCE * high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return low * (1 - TOLERANCE)
