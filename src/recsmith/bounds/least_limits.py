"""The least step time that is possible with a given set of fusion groups, as the smallest solution of an inequality.

Let z be the step time of any plan. Planes below the head make the model additive: each piece costs the seconds of its
plane, each group that a rank holds costs its opening, each group in use costs every rank what is shared. Say a plan
uses the groups U. What U costs every rank is fixed; what is left of z holds the pieces. No piece costs more than that,
and all pieces together cost at most W times that:

    sum over tables of (least total among options in U with pieces <= z - fixed that fit a device) <= W * (z - fixed),

and with any price p >= 0 on device bytes, since all bytes together fit all devices,

    sum over tables of (least total + p * bytes)  -  p * (capacity of all devices)  <=  W * (z - fixed).

The left side can only fall as z grows, so bisection finds the smallest z that satisfies both (docs/bounds.md).

Legend: T tables, W ranks, G fusion groups.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite

from recsmith._types import Bools
from recsmith.bounds.relaxation import DEAREST, fitting_price
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import Least, TableTotals
from recsmith.bounds.tolerances import BYTES_ROUNDING, ROUNDING
from recsmith.costs.protocol import Evaluator

TOLERANCE = 1e-6  # relative width at which a bisection ends; its lower end counts, so a bound loses no more than this
MOST_HALVINGS = 60  # of a bisection; 20 to 32 reach TOLERANCE, unless it starts from next to nothing
FIRST_RISE = 1e-6  # relative: how far above the start a bisection looks first; 4 times as far each time that fails
SHORTEST_S = 1e-12  # seconds, below any kernel: takes the place of relative steps where they start from 0
TIE_PENALTY = 1e-3  # as a share of their seconds; prefers options that do not span the world where both cost the same
WORLD_PENALTIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 1e4, 1e6)
"""Shares of their seconds by which options that span the world are made to look more expensive, tried in turn while
they raise the bound. Trade-off: any are valid; more of them find slightly higher bounds and cost a bisection each."""


class LeastLimits:
    """Solves the inequality of the module for sets of fusion groups of one problem."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound) -> None:
        problem = evaluator.problem
        self.totals = TableTotals(evaluator, linear)
        self.world, self.capacity = problem.cluster.world_size, float(problem.capacity.sum())

    def of_groups(self, groups: Bools, low: float, high: float) -> SelectionLimits | None:
        """The limits under which tables cost least in these groups (G,); None where they have no option left.

        `limit` of the answer is the seconds that the pieces take at least. low, high: what options that span the world
        leave every rank of the limit, in seconds; pieces that do not span it cost at most `high`.
        """
        limits = SelectionLimits(groups=groups, local=high)
        least = self._least_limit(limits, low)
        if least is None:
            return None
        if self.totals.at(replace(limits, limit=least)).bytes > self.capacity:
            limits = replace(limits, price=self._price_at(replace(limits, limit=least)))
            if self.totals.at(replace(limits, limit=least)).bytes > self.capacity and self._too_heavy(limits):
                return None
            least = max(least, self._least_limit(limits, low) or least)
        return self._with_penalty(least, limits, low)

    def selected(self, limits: SelectionLimits) -> Least:
        """What the tables select just above these limits; of options that cost the same, one that spans no world."""
        above = limits.limit * (1 + 2 * TOLERANCE) + SHORTEST_S
        return self.totals.per_table(replace(limits, limit=above, world_penalty=limits.world_penalty + TIE_PENALTY))

    def _price_at(self, limits: SelectionLimits) -> float:
        """The price on memory at which the selected options fit all devices."""
        return fitting_price(lambda price: self.totals.at(replace(limits, price=price)), self.capacity)

    def _too_heavy(self, limits: SelectionLimits) -> bool:
        """Whether tables outweigh all devices even in their lightest options."""
        return self.totals.at(replace(limits, limit=inf, price=DEAREST)).bytes > self.capacity

    def _with_penalty(self, least: float, limits: SelectionLimits, low: float) -> SelectionLimits:
        """The highest limit over the world penalties, where options that span the world leave less than `low`."""
        for penalty in WORLD_PENALTIES if low > 0 else ():
            penalised = replace(limits, world_penalty=penalty)
            higher = self._least_limit(penalised, low)
            if higher is None or higher <= least:
                break
            least, limits = higher, penalised
        return replace(limits, limit=least)

    def _least_limit(self, limits: SelectionLimits, low: float) -> float | None:
        """The smallest z that satisfies the inequality, with its penalty; None where tables fit no device."""
        penalty, bought = limits.world_penalty, limits.price * self.capacity * (1 + BYTES_ROUNDING)

        def needed(limit: float) -> float:
            value = self.totals.at(replace(limits, limit=limit)).value
            return ((value - bought) / self.world + penalty * low) / (1 + penalty)

        return least_fixed_point(needed)


def least_fixed_point(needed: Callable[[float], float]) -> float | None:
    """The smallest z with needed(z) <= z of a function that falls, from below; None where it is infinite throughout."""
    low = needed(inf)
    if not isfinite(low):
        return None
    low = max(low, 0.0)
    if needed(low) <= low * (1 + ROUNDING):
        return low * (1 - ROUNDING)
    step = FIRST_RISE
    high = low * (1 + step) if low > 0 else SHORTEST_S
    while needed(high) > high:
        low, step = high, step * 4
        high *= 1 + step
    for _ in range(MOST_HALVINGS):
        if high - low <= TOLERANCE * high:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) > middle else (low, middle)
    return low * (1 - ROUNDING)
