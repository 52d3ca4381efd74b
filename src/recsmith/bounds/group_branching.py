"""A bound by branch and bound over the fusion groups that a plan uses: docs/bounds.md proves it.

Let z be the step time of any plan. Planes below the head make the model additive: each piece costs the seconds of its
plane, each group that a rank holds costs its opening, each group in use costs every rank what is shared. Say a plan
uses the groups U. What U costs every rank is fixed; what is left of z holds the pieces. No piece costs more than that,
and all pieces together cost at most W times that:

    sum over tables of (least total among options in U with pieces <= z - fixed that fit a device) <= W * (z - fixed),

and with any price p >= 0 on device bytes, since all bytes together fit all devices,

    sum over tables of (least total + p * bytes)  -  p * (capacity of all devices)  <=  W * (z - fixed).

The left side can only fall as z grows; the smallest z that satisfies both is the bound for U. Branch and bound over
the groups gives the least over all U; stopped early, it still gives a bound.

Legend: T tables, W ranks, G fusion groups, O options, k work limits, J planes.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import DEAREST, fitting_price
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import Least, TableTotals
from recsmith.costs.protocol import Evaluator
from recsmith.sharding import SHARDING_TYPES, TYPE_NAMES, Span

ROUNDING = 1e-9  # sums are exact to far less
SLACK = 1e-13  # of bytes times their price, which may be far larger than the seconds that they are added to
TOLERANCE = 1e-6  # relative, of the bisections; the lower end counts
MOST_STEPS = 60
MOST_NODES, WORK = 64, 400_000  # sets of groups that are looked at: WORK over the number of options
CLOSE = 1e-4  # relative; branching ends where it can gain no more than this
MOST_PROMISING = 12
TIE_PENALTY = 1e-3  # prefers options that do not span the world where that costs next to nothing
STAND_INS = (("table_wise", "column_wise"), ("table_column_wise", "column_wise"), ("table_row_wise", "row_wise"))
WORLD_PENALTIES = (
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    20.0,
    100.0,
    1e4,
    1e6,
)  # tried in turn while they raise the bound


@dataclass(order=True)
class _GroupNode:
    """Plans that use only groups of `allowed` and all groups of `paid`.

    What spans the world leaves every rank between `low` and `high` seconds of the limit. `limits` and `least`: what
    tables pick, and under which limits.
    """

    value: float
    number: int
    allowed: Bools = field(compare=False)
    paid: Bools = field(compare=False)
    low: float = field(compare=False)
    high: float = field(compare=False)
    limits: SelectionLimits = field(compare=False, default=SelectionLimits())
    least: Least | None = field(compare=False, default=None)

    @property
    def used(self) -> Bools:
        """Groups (G,) of what tables pick."""
        used = np.zeros(len(self.allowed), dtype=bool)
        used[self._least.group] = True
        return used

    @property
    def room(self) -> float:
        """Seconds that the picks that span the world leave every rank; at least what the node promises."""
        return max(self.low, self.limits.limit - float(self._least.everywhere.sum()))

    @property
    def largest(self) -> float:
        """Seconds of the largest piece of the picks that does not span the world."""
        return float(self._least.largest.max())

    @property
    def _least(self) -> Least:
        assert self.least is not None, "a node is solved before it is asked"
        return self.least


class GroupBranching:
    """Best-first branch and bound."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound) -> None:
        problem = evaluator.problem
        self.totals = TableTotals(evaluator, linear)
        self.groups, self.opening = evaluator.groups, linear.opening
        self.world, self.capacity = problem.cluster.world_size, float(problem.capacity.sum())
        self.everywhere = np.zeros(evaluator.groups, dtype=bool)
        self.everywhere[evaluator.group[problem.modes.span == Span.WORLD]] = not evaluator.additive
        self.fixed = evaluator.shared.sum(axis=1) + np.where(self.everywhere, linear.opening, 0.0)
        self.budget = max(1, min(MOST_NODES, WORK // len(problem.options.mode)))
        self.made = 0

    def solve(self) -> tuple[float | None, list[SelectionLimits]]:
        """(the bound, promising limits)."""
        none = np.zeros(self.groups, dtype=bool)
        root = self._solved(_GroupNode(0.0, 0, ~needless_groups(self.totals.relaxation.evaluator), none, 0.0, np.inf))
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
        return open_[0].value, self._promising(seen)

    def _promising(self, seen: list[_GroupNode]) -> list[SelectionLimits]:
        """The limits of the nodes whose picks would cost least, one node for each set of groups and room."""
        promising: dict[tuple[bytes, float, float], SelectionLimits] = {}
        for node in sorted(seen, key=lambda node: (self._estimate(node), node.number)):
            limits = replace(node.limits, menu=node.used, world_penalty=node.limits.world_penalty + TIE_PENALTY)
            promising.setdefault((node.used.tobytes(), limits.local, limits.world_penalty), limits)
        return list(promising.values())[:MOST_PROMISING]

    def _children(self, node: _GroupNode) -> list[_GroupNode]:
        """The node split by what its picks break most: groups that are not paid, or room that is not there."""
        unpaid, missing = node.used & ~node.paid, node.largest - node.room
        dearest = float(np.where(unpaid, self.fixed + self._opens(node), 0.0).max())
        if max(dearest, missing) <= CLOSE * node.value:
            return []
        if dearest > CLOSE * node.value:
            group = int(np.where(unpaid, self.fixed + self._opens(node), -1.0).argmax())
            with_, without = node.paid.copy(), node.allowed.copy()
            with_[group], without[group] = True, False
            return [replace(node, paid=with_), replace(node, allowed=without)]
        middle = (node.largest + node.room) / 2
        return [replace(node, high=middle), replace(node, low=middle)]

    def _opens(self, node: _GroupNode) -> Floats:
        """Seconds (G,) of the first launch of groups of single ranks or hosts, unless one is paid already."""
        return np.where(self.everywhere | self._local(node.paid), 0.0, self.opening)

    def _local(self, groups: Bools) -> bool:
        return bool((groups & ~self.everywhere).any())

    def _cost_of(self, paid: Bools) -> float:
        """Seconds that these groups cost the slowest rank at least, before any piece."""
        return float(self.fixed[paid].sum()) + (self.opening if self._local(paid) else 0.0)

    def _estimate(self, node: _GroupNode) -> float:
        """What the node's picks would cost with all their groups paid, and with room for their largest piece."""
        missing = max(0.0, node.largest - node.room)
        return node.value - self._cost_of(node.paid) + self._cost_of(node.paid | node.used) + missing

    def _solved(self, node: _GroupNode) -> _GroupNode | None:
        """The node with its bound; None where tables have no option left."""
        self.made += 1
        limits = SelectionLimits(menu=node.allowed, local=node.high)
        left = self._least_limit(limits, node.low)
        if left is None:
            return None
        if self.totals.at(replace(limits, limit=left)).bytes > self.capacity:
            price = fitting_price(lambda p: self.totals.at(replace(limits, limit=left, price=p)), self.capacity)
            limits = replace(limits, price=price)
            if self.totals.at(replace(limits, limit=left)).bytes > self.capacity and self._too_heavy(limits):
                return None
            left = max(left, self._least_limit(limits, node.low) or left)
        left, limits = self._with_penalty(left, limits, node.low)
        at_left = replace(
            limits, limit=left * (1 + 2 * TOLERANCE) + 1e-12, world_penalty=limits.world_penalty + TIE_PENALTY
        )
        least = self.totals.per_table(at_left)
        value = max(node.value, left + self._cost_of(node.paid))
        return replace(node, value=value, number=self.made, limits=replace(limits, limit=left), least=least)

    def _too_heavy(self, limits: SelectionLimits) -> bool:
        """Whether tables outweigh all devices even in their lightest options."""
        return self.totals.at(replace(limits, limit=np.inf, price=DEAREST)).bytes > self.capacity

    def _with_penalty(self, left: float, limits: SelectionLimits, low: float) -> tuple[float, SelectionLimits]:
        """The best limit over some tolls on options that span the world, where those leave less room than `low`."""
        for penalty in WORLD_PENALTIES if low > 0 else ():
            penalised = replace(limits, world_penalty=penalty)
            higher = self._least_limit(penalised, low)
            if higher is None or higher <= left:
                break
            left, limits = higher, penalised
        return left, limits

    def _least_limit(self, limits: SelectionLimits, low: float) -> float | None:
        """The smallest z that satisfies the inequality of the module, with penalty; None where tables fit no device."""
        penalty, bought = limits.world_penalty, limits.price * self.capacity * (1 + SLACK)

        def needed(limit: float) -> float:
            value = self.totals.at(replace(limits, limit=limit)).value
            return ((value - bought) / self.world + penalty * low) / (1 + penalty)

        return _fixed_point(needed)


def _fixed_point(needed: Callable[[float], float]) -> float | None:
    """The smallest z with needed(z) <= z of a function that falls, from below; None where it is infinite throughout."""
    low = needed(np.inf)
    if not np.isfinite(low):
        return None
    low = max(low, 0.0)
    if needed(low) <= low * (1 + ROUNDING):
        return low * (1 - ROUNDING)
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
    return low * (1 - ROUNDING)


def needless_groups(evaluator: Evaluator) -> Bools:
    """Groups (G,) of types that another type stands in for at no higher cost: a best plan can do without them.

    On one host row_wise stands in for table_row_wise; column_wise, which may keep a table whole, for table_wise.
    """
    modes, needless = evaluator.problem.modes, np.zeros(evaluator.groups, dtype=bool)
    for mine, other in STAND_INS:
        kinds = TYPE_NAMES.index(mine), TYPE_NAMES.index(other)
        keys = list(zip(modes.table.tolist(), modes.kernel.tolist(), modes.load_factor.tolist(), strict=True))
        stand_in = {key: mode for mode, key in enumerate(keys) if modes.type[mode] == kinds[1]}
        for group in np.unique(evaluator.group[modes.type == kinds[0]]).tolist():
            members = np.flatnonzero(evaluator.group == group)
            found = [stand_in.get(keys[mode]) for mode in members.tolist()]
            if None not in found and (modes.type[members] == kinds[0]).all():
                needless[group] = _stands_in(evaluator, members, np.array(found))
    return needless


def _stands_in(evaluator: Evaluator, modes: Ints, others: Ints) -> bool:
    """Whether whole tables cost no more by the other modes, weigh the same, and may be split as well."""
    problem, table = evaluator.problem, evaluator.problem.modes.table[modes]
    dim = problem.demand.dim[table]
    mine, theirs = problem.memory(modes, dim), problem.memory(others, dim)
    weigh_alike = all(
        np.array_equal(a.device, b.device) and np.array_equal(a.host, b.host) for a, b in zip(mine, theirs, strict=True)
    )
    cost_no_more = bool((evaluator.terms(others, dim) <= evaluator.terms(modes, dim) * (1 + ROUNDING)).all())
    latencies = (evaluator.shared[evaluator.group[others]] <= evaluator.shared[evaluator.group[modes]]).all()
    splits = SHARDING_TYPES[problem.modes.type[others[0]]].splits_columns
    any_width = problem.space.widths == "any" and bool(problem.demand.pooled[table].all())
    same_span = np.array_equal(problem.modes.coverage[modes], problem.modes.coverage[others])
    return weigh_alike and cost_no_more and bool(latencies) and same_span and (any_width or not splits)
