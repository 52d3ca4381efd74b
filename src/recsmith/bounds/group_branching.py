"""A bound for problems of any size, by branch and bound over the fusion groups that a plan uses.

A node of the search fixes which groups a plan may use, which of them it certainly uses, and how many seconds pieces
that span the world leave every rank. Its bound is the least step time with these groups plus the cost of the certain
groups. Each node is split by what its tables' cheapest options violate most. The least bound of all open nodes holds
for every plan, whenever the search stops (docs/bounds.md).

The least step time is the smallest solution of an inequality. Let z be the step time of any plan. Planes below the head
make the model additive: each piece costs the seconds of its plane, each group that a rank holds costs its opening, each
group in use costs every rank its shared seconds. The cost of a plan's groups U on every rank is fixed; the rest of z
holds the pieces. No piece costs more than that rest, and all pieces together cost at most W times that:

    sum over tables of (least total among options in U with pieces <= z - fixed that fit a device) <= W * (z - fixed),

and with any price p >= 0 on device bytes, because all bytes together fit all devices,

    sum over tables of (least total + p * bytes)  -  p * (capacity of all devices)  <=  W * (z - fixed).

The left side can only fall as z grows, so bisection finds the smallest z that satisfies both.

Legend: T tables, W ranks, G fusion groups, O options.
"""

import heapq
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import numpy as np

from recsmith._types import Bools
from recsmith.bounds.groups import GroupCosts, groups_dominated_by_type
from recsmith.bounds.linear_bounds import BYTES_ROUNDING, ROUNDING, LinearBound, SelectionLimits, plane_slopes
from recsmith.bounds.plane_mixes import plane_game
from recsmith.bounds.relaxation import DEAREST, fitting_price
from recsmith.bounds.table_totals import Least, TableTotals
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import matmul

MOST_NODES = 64  # nodes that are solved, fewer for large problems: trade-off between the bound and the time it takes
OPTIONS_PRICED = 400_000  # most nodes times options of a problem (but always one node): 10 nodes at 40,000 options
CLOSE = 1e-4  # of a node's bound; branching ends if no split can raise it by more than this
MOST_PROMISING = 12  # limits offered to searches; each may become a draft of a plan
TOLERANCE = 1e-6  # relative width at which a bisection ends; its lower end is used, so a bound loses no more than this
MOST_HALVINGS = 60  # most halvings of a bisection; 20 to 32 reach TOLERANCE, unless it starts from next to nothing
GROWTH = 4  # most growth of a bisection's place from one step to the next: needs may be infinite, or far too high
SHORTEST_S = 1e-12  # seconds, below any kernel: used in place of relative steps that start from 0
MOST_PRICES, BEYOND = 4, 1.001  # prices for tables that lack room, each sought at this many times the limit before
TIE_PENALTY = 1e-3  # as a share of their seconds; prefers options that do not span the world if both cost the same
WORLD_PENALTIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 1e4, 1e6)
"""Shares of their seconds by which options that span the world are made to look more expensive, tried in turn while
they raise the bound. Trade-off: any are valid; more of them find slightly higher bounds and cost a bisection each."""


@dataclass(frozen=True, slots=True)
class GroupBranch:
    """A part of the space: plans that use only groups of `allowed` (G,) and all groups of `paid` (G,).

    Pieces that span the world leave every rank between `low` and `high` seconds of the limit. value: seconds that no
    plan of the part can undercut, as far as is known before it is solved.
    """

    allowed: Bools
    paid: Bools
    low: float = 0.0
    high: float = inf
    value: float = 0.0


@dataclass(order=True, frozen=True, slots=True)
class _GroupNode:
    """A branch that has been solved: its bound, and what its tables select under which limits."""

    value: float
    number: int
    branch: GroupBranch = field(compare=False)
    limits: SelectionLimits = field(compare=False)
    least: Least = field(compare=False)
    linear: LinearBound = field(compare=False)

    @property
    def used(self) -> Bools:
        """Groups (G,) of the selected options."""
        used = np.zeros(len(self.branch.allowed), dtype=bool)
        used[self.least.group] = True
        return used

    @property
    def room(self) -> float:
        """Seconds that selected options that span the world leave every rank; at least the branch's `low`."""
        return max(self.branch.low, self.limits.limit - float(self.least.everywhere.sum()))

    @property
    def largest(self) -> float:
        """Seconds of the largest selected piece that does not span the world."""
        return float(self.least.largest.max())


class GroupBranching:
    """Best-first branch and bound over the groups of one problem."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound) -> None:
        self.evaluator, self.linear = evaluator, linear
        self.least_limits = LeastLimits(evaluator, linear)
        self.game, self.slopes = plane_game(evaluator), plane_slopes(evaluator)
        self.prepared: dict[tuple[bytes, float, float, float], LeastLimits] = {}
        self.costs = GroupCosts(evaluator, linear.opening)
        self.budget = max(1, min(MOST_NODES, OPTIONS_PRICED // len(evaluator.problem.options.mode)))
        self.made = 0

    def solve(self) -> tuple[float | None, list[SelectionLimits]]:
        """(seconds that no plan can undercut, limits under which good plans should be sought, the best first).

        The seconds are None if no plan exists: some table, or all together, have no choice that fits the devices.
        """
        nobody = np.zeros(self.evaluator.groups, dtype=bool)
        root = self._solved(GroupBranch(allowed=~groups_dominated_by_type(self.evaluator), paid=nobody))
        if root is None:
            return None, []
        open_, seen = [root], [root]
        while self.made < self.budget:
            children = self._children(open_[0])
            if not children:
                break
            heapq.heappop(open_)
            for child in filter(None, map(self._solved, children)):
                heapq.heappush(open_, child)
                seen.append(child)
            if not open_:
                return None, []
        self.linear = open_[0].linear
        return open_[0].value, self._promising(seen)

    def _promising(self, seen: list[_GroupNode]) -> list[SelectionLimits]:
        """The limits of the nodes whose selections would cost least, one node for each set of groups and room."""
        promising: dict[tuple[bytes, float, float], SelectionLimits] = {}
        for node in sorted(seen, key=lambda node: (self._estimate(node), node.number)):
            limits = replace(node.limits, groups=node.used, world_penalty=node.limits.world_penalty + TIE_PENALTY)
            promising.setdefault((node.used.tobytes(), limits.local, limits.world_penalty), limits)
        return list(promising.values())[:MOST_PROMISING]

    def _children(self, node: _GroupNode) -> list[GroupBranch]:
        """The node split by what its selection violates most: groups that are not paid, or room that is missing."""
        branch = replace(node.branch, value=node.value)
        unpaid, missing = node.used & ~branch.paid, node.largest - node.room
        added = self.costs.added(branch.paid)
        dearest = float(np.where(unpaid, added, 0.0).max())
        if max(dearest, missing) <= CLOSE * node.value:
            return []
        if dearest > CLOSE * node.value:
            group = int(np.where(unpaid, added, -1.0).argmax())
            with_, without = branch.paid.copy(), branch.allowed.copy()
            with_[group], without[group] = True, False
            return [replace(branch, paid=with_), replace(branch, allowed=without)]
        middle = (node.largest + node.room) / 2
        return [replace(branch, high=middle), replace(branch, low=middle)]

    def _estimate(self, node: _GroupNode) -> float:
        """The cost of the node's selection with all its groups paid, and with room for its largest piece."""
        paid, missing = node.branch.paid, max(0.0, node.largest - node.room)
        return node.value - self.costs.certain(paid) + self.costs.certain(paid | node.used) + missing

    def _solved(self, branch: GroupBranch) -> _GroupNode | None:
        """The branch with its bound; None if some table has no option left."""
        self.made += 1
        least_limits, limits = self._limited(branch)
        if limits is None:
            return None
        value = max(branch.value, limits.limit + self.costs.certain(branch.paid))
        return _GroupNode(value, self.made, branch, limits, least_limits.selected(limits), least_limits.linear)

    def _limited(self, branch: GroupBranch) -> tuple["LeastLimits", SelectionLimits | None]:
        """The highest limits of a branch, and what found them: prices by two mixes, the second of which suits them."""
        least_limits = self._mixed(branch.allowed)
        limits = least_limits.of_groups(branch.allowed, branch.low, branch.high)
        if limits is None or not least_limits.bind(limits):
            return least_limits, limits
        largest = min(limits.limit, branch.high) * BEYOND
        other = self._mixed(branch.allowed, limits.price, largest, limits.world_penalty)
        found = other.raised(limits, branch.low)
        return (other, found) if found.limit > limits.limit else (least_limits, limits)

    def _mixed(self, groups: Bools, price: float = 0.0, largest: float = inf, penalty: float = 0.0) -> "LeastLimits":
        """Prices by the mix of planes under which tables cost most, with this price, largest piece and penalty."""
        key = groups.tobytes(), price, largest, penalty
        if key not in self.prepared:
            mix = self.game.mix(groups, price, largest, penalty)
            linear = LinearBound(matmul(mix, self.slopes), self.costs.opening, mix)
            self.prepared[key] = self.least_limits.repriced(linear)
        return self.prepared[key]


# --- the least limit of a set of groups ------------------------------------------------------------------------------


class LeastLimits:
    """Solves the inequality of the module for sets of fusion groups of one problem."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound) -> None:
        problem = evaluator.problem
        self.totals, self.linear = TableTotals(evaluator, linear), linear
        self.world, self.capacity = problem.cluster.world_size, float(problem.capacity.sum())

    def repriced(self, linear: LinearBound) -> "LeastLimits":
        """The same solver with the prices of another linear bound."""
        other = copy(self)
        other.totals, other.linear = self.totals.repriced(linear), linear
        return other

    def of_groups(self, groups: Bools, low: float, high: float) -> SelectionLimits | None:
        """The limits under which tables cost least in these groups (G,); None if some table has no option left.

        `limit` of the answer is the least seconds of the pieces. low, high: what options that span the world leave
        every rank of the limit, in seconds; pieces that do not span it cost at most `high`.
        """
        limits = SelectionLimits(groups=groups, local=high)
        least = self._least_limit(limits, low)
        if least is None:
            return None
        if self.totals.at(replace(limits, limit=least)).bytes > self.capacity:
            limits = replace(limits, price=self._price_at(replace(limits, limit=least)))
            fits = self.totals.at(replace(limits, limit=least)).bytes <= self.capacity
            if not fits and self._too_heavy(limits):
                return None
            least = max(least, self._least_limit(limits, low) or least)
            if not fits:
                least, limits = self._priced_beyond(least, limits, low)
        return self._with_penalty(least, limits, low)

    def _priced_beyond(self, least: float, limits: SelectionLimits, low: float) -> tuple[float, SelectionLimits]:
        """The limit and its price if tables have room only from some limit on: the price just above that limit.

        Every price gives a valid limit; each is found just beyond the limit of the price before, as long as that helps.
        """
        for _ in range(MOST_PRICES):
            price = self._price_at(replace(limits, limit=least * BEYOND + SHORTEST_S))
            higher = self._least_limit(replace(limits, price=price), low)
            if higher is None or higher <= least:
                break
            risen, least, limits = higher > least * BEYOND, higher, replace(limits, price=price)
            if not risen:
                break
        return least, limits

    def raised(self, limits: SelectionLimits, low: float) -> SelectionLimits:
        """Limits found by other prices, raised as far as these prices allow; price of memory and penalty stay."""
        return replace(limits, limit=max(limits.limit, self._least_limit(limits, low) or 0.0))

    def bind(self, limits: SelectionLimits) -> bool:
        """Whether tables would cost less if memory had no price and pieces no size limit."""
        free = self.totals.at(SelectionLimits(groups=limits.groups)).value / self.world
        return max(limits.price, limits.world_penalty) > 0 or free < limits.limit * (1 - CLOSE)

    def selected(self, limits: SelectionLimits) -> Least:
        """What the tables select just above these limits; of equally cheap options one that spans no world."""
        above = limits.limit * (1 + 2 * TOLERANCE) + SHORTEST_S
        return self.totals.per_table(replace(limits, limit=above, world_penalty=limits.world_penalty + TIE_PENALTY))

    def _price_at(self, limits: SelectionLimits) -> float:
        """The price on memory at which the selected options fit all devices."""
        return fitting_price(lambda price: self.totals.at(replace(limits, price=price)), self.capacity)

    def _too_heavy(self, limits: SelectionLimits) -> bool:
        """Whether tables exceed all devices together even in their lightest options."""
        return self.totals.at(replace(limits, limit=inf, price=DEAREST)).bytes > self.capacity

    def _with_penalty(self, least: float, limits: SelectionLimits, low: float) -> SelectionLimits:
        """The highest limit over the world penalties, if options that span the world leave less than `low`."""
        for penalty in WORLD_PENALTIES if low > 0 else ():
            penalised = replace(limits, world_penalty=penalty)
            higher = self._least_limit(penalised, low)
            if higher is None or higher <= least:
                break
            least, limits = higher, penalised
        return replace(limits, limit=least)

    def _least_limit(self, limits: SelectionLimits, low: float) -> float | None:
        """The smallest z that satisfies the inequality, with its penalty; None if tables fit no device."""
        penalty, bought = limits.world_penalty, limits.price * self.capacity * (1 + BYTES_ROUNDING)

        def needed(limit: float) -> float:
            value = self.totals.at(replace(limits, limit=limit)).value
            return ((value - bought) / self.world + penalty * low) / (1 + penalty)

        return least_fixed_point(needed)


def least_fixed_point(needed: Callable[[float], float]) -> float | None:
    """The smallest z, from below, with needed(z) <= z of a falling function; None if it is infinite throughout."""
    low = needed(inf)
    if not isfinite(low):
        return None
    at = low = max(low, 0.0)
    high = inf
    for _ in range(MOST_HALVINGS):
        found = needed(at)  # needs fall, so the solution is between any place and the need there
        low, high = (at, min(high, found)) if found > at else (max(low, found), at)
        if high - low <= TOLERANCE * low or high == 0:
            break
        at = min((low + high) / 2, max(low * GROWTH, SHORTEST_S))
    return low * (1 - ROUNDING)
