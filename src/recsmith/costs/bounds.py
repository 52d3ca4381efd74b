"""A bound for convex cost models, and where good plans are: docs/bounds.md proves it.

Let z be the step time of any plan. Planes below the head make the model additive: each piece costs the seconds of its
plane, each group that a rank holds costs its opening, each group in use costs every rank what is shared. Say a plan
uses the groups U. What U costs every rank is fixed; what is left of z holds the pieces. No piece costs more than that,
and all pieces together cost at most W times that:

    sum over tables of (least total among options in U with pieces <= z - fixed that fit a device) <= W * (z - fixed),

and with any price p >= 0 on device bytes, since all bytes together fit all devices,

    sum over tables of (least total + p * bytes)  -  p * (capacity of all devices)  <=  W * (z - fixed).

The left side can only fall as z grows; the smallest z that satisfies both is the bound for U. Branch and bound over
the groups gives the least over all U; stopped early, it still gives a bound.

Legend: T tables, W ranks, G fusion groups, O options, k work terms, J planes.
"""

import heapq
from dataclasses import dataclass, field

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs._base import Evaluator, Outlook, Plane
from recsmith.costs.relaxation import fitting_price
from recsmith.costs.table_totals import TableTotals
from recsmith.plans import Bound
from recsmith.problems import NO_PIECE, Problem
from recsmith.sharding import Span

ROUNDING = 1e-9  # sums are exact to far less
TOLERANCE = 1e-6  # relative, of the bisections; the lower end counts
MOST_STEPS = 60
MOST_NODES, WORK = 64, 400_000  # sets of groups that are looked at: WORK over the number of options
CLOSE = 5e-4  # relative; branching ends where it can gain no more than this
MOST_MENUS = 8
MOST_MIXES = 6
PLANE_STEPS = (1.0, 0.5, 0.25, 0.125)  # of the line search between planes


def outlook(evaluator: Evaluator) -> Outlook:
    """The bound of an evaluator over its problem's space (see the module), and the menus met on the way."""
    problem = evaluator.problem
    everything = np.ones(evaluator.groups, dtype=bool)
    if not evaluator.planes:
        return Outlook(Bound(value_s=None, kind="none: the cost model is not convex", space=describe_space(problem)),
                       None, (everything,))  # fmt: skip
    plane = tightest_plane(evaluator)
    value, menus = _Branching(evaluator, plane).solve()
    kind = "additive: mean load, largest piece, memory"
    if not evaluator.additive:
        kind = "convex: planes below the cost, fusion groups, mean load, largest piece, memory"
    return Outlook(Bound(value_s=value, kind=kind, space=describe_space(problem)), plane, (*menus, everything))


def describe_space(problem: Problem) -> str:
    """The words of the space that a bound holds for."""
    exact = "; keep_exact" if problem.constraints.keep_exact else ""
    rules = f"; {len(problem.constraints.rules)} table rules" if problem.constraints.rules else ""
    return f"{problem.space.describe()}; memory {problem.constraints.memory}{exact}{rules}"


# --- which groups are used ----------------------------------------------------------------------------------------


@dataclass(order=True)
class _Node:
    """Plans that use only groups of `allowed`, and all groups of `paid`; `used` by what tables pick."""

    value: float
    number: int
    allowed: Bools = field(compare=False)
    paid: Bools = field(compare=False)
    used: Bools = field(compare=False)


class _Branching:
    """Best-first branch and bound over the groups that a plan uses."""

    def __init__(self, evaluator: Evaluator, plane: Plane) -> None:
        problem = evaluator.problem
        self.totals = TableTotals(evaluator, plane)
        self.groups, self.opening = evaluator.groups, plane.opening
        self.world, self.room = problem.cluster.world_size, float(problem.capacity.sum())
        self.everywhere = np.zeros(evaluator.groups, dtype=bool)
        self.everywhere[evaluator.group[problem.modes.span == Span.WORLD]] = not evaluator.additive
        self.fixed = evaluator.shared.sum(axis=1) + np.where(self.everywhere, plane.opening, 0.0)
        self.budget = max(1, min(MOST_NODES, WORK // len(problem.options.mode)))
        self.made = 0

    def solve(self) -> tuple[float | None, list[Bools]]:
        """(the bound, the promising sets of groups)."""
        root = self._node(np.ones(self.groups, dtype=bool), np.zeros(self.groups, dtype=bool), 0.0)
        if root is None:
            return None, []
        open_, estimates = [root], {root.used.tobytes(): (self._estimate(root), root.used)}
        while self.made < self.budget:
            node = open_[0]
            if node.value >= min(value for value, _ in estimates.values()) * (1 - CLOSE):
                break
            heapq.heappop(open_)
            for child in self._children(node):
                heapq.heappush(open_, child)
                estimates.setdefault(child.used.tobytes(), (self._estimate(child), child.used))
        ranked = sorted(estimates.values(), key=lambda pair: pair[0])
        return open_[0].value, [used for _, used in ranked[:MOST_MENUS]]

    def _children(self, node: _Node) -> list[_Node]:
        """The node split by whether the dearest group that is used but not paid is in use."""
        unpaid = node.used & ~node.paid
        group = int(np.where(unpaid, self.fixed + self.opening, -1.0).argmax())
        with_, without = node.paid.copy(), node.allowed.copy()
        with_[group], without[group] = True, False
        pair = self._node(node.allowed, with_, node.value), self._node(without, node.paid, node.value)
        return [child for child in pair if child is not None]

    def _cost_of(self, paid: Bools) -> float:
        """Seconds that these groups cost the slowest rank at least, before any piece."""
        local = bool((paid & ~self.everywhere).any())
        return float(self.fixed[paid].sum()) + (self.opening if local else 0.0)

    def _estimate(self, node: _Node) -> float:
        """What the node's picks would cost with all their groups paid."""
        return node.value - self._cost_of(node.paid) + self._cost_of(node.paid | node.used)

    def _node(self, allowed: Bools, paid: Bools, parent: float) -> _Node | None:
        """The bound of a node; None where tables have no option left."""
        self.made += 1
        left = _least_limit(self.totals, 0.0, allowed, self.world, self.room)
        if left is None:
            return None
        price = 0.0
        if self.totals.at(left, 0.0, allowed).bytes > self.room:
            price = fitting_price(lambda p: self.totals.at(left, p, allowed), self.room)
            left = max(left, _least_limit(self.totals, price, allowed, self.world, self.room) or left)
        least = self.totals.per_table(left * (1 + 2 * TOLERANCE), price, allowed)
        used = np.zeros(self.groups, dtype=bool)
        used[least.group] = True
        return _Node(max(parent, left + self._cost_of(paid)), self.made, allowed, paid, used)


def _least_limit(totals: TableTotals, price: float, menu: Bools, world: int, room: float) -> float | None:
    """The smallest z with totals(z) - price * room <= world * z; None where tables fit no device at all."""

    def needed(limit: float) -> float:
        return (totals.at(limit, price, menu).value - price * room) / world

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


# --- which plane --------------------------------------------------------------------------------------------------


def tightest_plane(evaluator: Evaluator) -> Plane:
    """The mix of an evaluator's planes under which the cheapest picks of all tables cost most: a dual ascent.

    Any mix lies below the head, so any gives a valid bound; the best mix gives the tightest.
    """
    if len(evaluator.planes) == 1:
        return evaluator.planes[0]
    slopes = np.stack([plane.slopes for plane in evaluator.planes])  # (J, k)
    work = _option_terms(evaluator)
    start = evaluator.problem.options.start
    mix = np.full(len(slopes), 1 / len(slopes))
    value, totals = _cheapest(work, mix @ slopes, start)
    for _ in range(MOST_MIXES):
        steepest = np.eye(len(slopes))[int((slopes @ totals).argmax())]
        trials = [(1 - step) * mix + step * steepest for step in PLANE_STEPS]
        found = [(*_cheapest(work, trial @ slopes, start), trial) for trial in trials]
        best = max(found, key=lambda trial: trial[0])
        if best[0] <= value * (1 + CLOSE):
            break
        value, totals, mix = best
    return Plane(mix @ slopes, float(mix @ [plane.opening for plane in evaluator.planes]))


def _option_terms(evaluator: Evaluator) -> Floats:
    """Terms of all pieces of each option over all covered ranks (O, k)."""
    problem = evaluator.problem
    terms = evaluator.terms(problem.pieces.mode, problem.pieces.width)
    piece, count = problem.options.piece, problem.options.count
    used = np.where(piece != NO_PIECE, count, 0) * problem.modes.coverage[problem.options.mode][:, None]
    return terms[piece[:, 0]] * used[:, :1] + terms[piece[:, 1]] * used[:, 1:]


def _cheapest(work: Floats, slopes: Floats, start: Ints) -> tuple[float, Floats]:
    """(seconds, terms (k,)) of all tables' cheapest options on a plane."""
    seconds = work @ slopes
    least = np.minimum.reduceat(seconds, start[:-1])
    cheapest = np.flatnonzero(seconds == np.repeat(least, np.diff(start)))
    picks = cheapest[np.searchsorted(cheapest, start[:-1])]
    return float(least.sum()), work[picks].sum(axis=0)
