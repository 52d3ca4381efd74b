"""Nodes of the search of phase_branching.py: their ranges and multipliers, and how they are split in two.

Legend: K nodes side by side, C different tables, G fusion groups, J planes.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.dual_feasible import FUNCTIONS
from recsmith.bounds.groups import GroupCosts

FINE = 1e-3  # of a node's bound: a group or range that costs less is not split
MOST_TESTED = 2  # tables for which a split is tried in one node; trade-off: each costs an evaluation of two nodes
APART = 10  # times the difference of a table's two costs: subtracted from its cost to rank the tables to try
FEW_TABLES = 20  # tables up to which it is subtracted once: bounds by fillings there ended up to 0.5 % lower
NO_DUAL: Floats = np.zeros(len(FUNCTIONS))
NARROWER = 0.2  # of the width of the other range: a narrower range is not split before the other
STEP_SAFE, STEPS_SAFE = 1 + 1e-9, 1 + 4e-9  # factors on the seconds of a piece, and of a rank, for counting steps
BELOW_STEP = 1 - 1e-8  # times whole steps: the end of a range that holds slightly fewer
LEAST_MIDDLE = 1 / 6  # of the upper end of a range: the least value of its lower end when the middle is computed


@dataclass(frozen=True, slots=True)
class PhaseRanges:
    """Ranges of the seconds of the slowest rank's pieces: (least, most) in the first phase, and in the later phases.

    Pieces that span the world, latencies and one opening are not counted, because every rank pays them equally.
    """

    ready: tuple[float, float]
    rest: tuple[float, float]


class Multipliers(NamedTuple):
    """What a second of each phase, and a byte, is worth in the price of a piece; all 0 or more.

    ready_multiplier: of seconds in the first phase; rest_multiplier: of those in the later phases. byte_price: seconds
    per byte of device memory. mix (G, J): shares of the planes that give each group's seconds. plane: index of the
    plane that decides which pieces are big (phase_prices.py). dual (D,): what the upper end of the range of the first
    phase is worth, by each of the functions of dual_feasible.py. step_multiplier: what a second in the later phases is
    worth in addition, counted in whole steps of width.
    """

    ready_multiplier: float
    rest_multiplier: float
    byte_price: float
    mix: Floats
    plane: int
    dual: Floats = NO_DUAL
    step_multiplier: float = 0.0


class NodeArrays(NamedTuple):
    """Ranges and multipliers of K nodes as arrays: ready and rest are (K, 2), mix (K, G, J), dual (K, D), others (K,).

    dual: seconds that functions of dual_feasible.py may add up to on a rank; stepped: the same of whole steps.
    """

    ready: Floats
    rest: Floats
    ready_multiplier: Floats
    rest_multiplier: Floats
    byte_price: Floats
    mix: Floats
    plane: Ints
    dual: Floats
    step_multiplier: Floats
    stepped: Floats

    @property
    def filled(self) -> Floats:
        """Seconds (K,) that a rank may be worth beyond those of both phases."""
        return self.dual.sum(axis=1) + self.stepped


def stacked(ranges: Sequence[PhaseRanges], multipliers: Sequence[Multipliers], step_s: float = 0.0) -> NodeArrays:
    """Nodes side by side. step_s: seconds of a step of width in the later phases; 0 if none are counted."""
    ready = np.array([each.ready for each in ranges])
    ready_multiplier, rest_multiplier, byte_price, mix, plane, dual, steps = zip(*multipliers, strict=True)
    scaled: Floats = np.zeros((len(ready), len(NO_DUAL)))
    if any(each is not NO_DUAL for each in dual):
        scaled = np.concatenate(dual).reshape(len(ready), -1) * ready[:, 1:]
    rest, step_multiplier = np.array([each.rest for each in ranges]), np.array(steps)
    return NodeArrays(
        ready=ready,
        rest=rest,
        ready_multiplier=np.array(ready_multiplier),
        rest_multiplier=np.array(rest_multiplier),
        byte_price=np.array(byte_price),
        mix=np.concatenate(mix).reshape(len(ready), *mix[0].shape),
        plane=np.array(plane),
        dual=scaled,
        step_multiplier=step_multiplier,
        stepped=step_multiplier * in_steps(rest[:, 1], step_s, STEPS_SAFE),
    )


def in_steps(seconds: Floats, step_s: float, safe: float) -> Floats:
    """The part of the seconds that whole steps take; `safe`: a factor on the seconds, above rounding errors."""
    return np.floor(seconds / step_s * safe) * step_s if step_s > 0 else np.zeros_like(seconds)


def least_product(factor: Floats, ends: Floats) -> Floats:
    """The least (K,) of factor (K,) times any value between two ends (K, 2), which is taken at one end."""
    return np.minimum(factor * ends[:, 0], factor * ends[:, 1])


class Halving(NamedTuple):
    """How a part of the space was halved, and which half this is, as certificates state it (plans/certificates.py).

    split: 'group', 'ready', 'rest' or 'table'. of: the group, or the different table. at: seconds of a range.
    """

    split: str
    of: int
    at: float
    second: bool


@dataclass(order=True)
class PhaseNode:
    """A part of the space: plans by the groups that they use, and by the seconds of their slowest ranks.

    value: seconds that no plan of the part can undercut. open (C, G): groups that each table may use. paid (G,): groups
    that the plan certainly uses. step: relative size of the next change of its multipliers. least (C, G): least cost of
    each table in each group by its multipliers. settled: whether its multipliers were sought for as long as the root's.
    path: the halvings that lead to it from all plans.
    """

    value: float
    number: int
    ranges: PhaseRanges = field(compare=False)
    open: Bools = field(compare=False)
    paid: Bools = field(compare=False)
    multipliers: Multipliers = field(compare=False)
    step: float = field(compare=False)
    least: Floats = field(compare=False)
    settled: bool = field(compare=False, default=False)
    path: tuple[Halving, ...] = field(compare=False, default=())

    def halved(self, split: str, of: int, at: float, first: Mapping[str, Any], second: Mapping[str, Any]) -> "Pair":
        """Both halves of a split, from the attributes that each changes."""
        return self._half(first, Halving(split, of, at, False)), self._half(second, Halving(split, of, at, True))

    def _half(self, other: Mapping[str, Any], halving: Halving) -> "PhaseNode":
        made = copy(self)
        for name, value in other.items():
            setattr(made, name, value)
        made.path = (*self.path, halving)
        return made


Pair = tuple[PhaseNode, PhaseNode]


def split_by_group(node: PhaseNode, costs: GroupCosts, replaced: Mapping[int, int]) -> list[Pair]:
    """Split by the most expensive group that tables select without paying for it: closed to all, or paid for.

    replaced: groups, and those that can replace them: a plan that uses the first uses the second, too.
    """
    used = np.zeros(len(node.paid), dtype=bool)
    used[np.where(node.open, node.least, np.inf).argmin(axis=1)] = True
    cost = np.where(used & ~node.paid, costs.added(node.paid), 0.0)
    group = int(cost.argmax())
    if cost[group] <= FINE * node.value:
        return []
    paid, open_ = node.paid.copy(), node.open.copy()
    paid[[group, replaced.get(group, group)]] = True
    open_[:, [group, *(other for other, into in replaced.items() if into == group)]] = False
    return [node.halved("group", group, 0.0, {"open": open_}, {"paid": paid})]


def split_by_range(node: PhaseNode, step_s: float = 0.0, fine: float = FINE) -> list[Pair]:
    """Split by the lower or upper part of a range, of the first phase or of the rest, unless the other is much wider.

    If neither split raised the bound, one range would otherwise be cut ever finer, while the bound needs both narrow.
    step_s: seconds of a step of width in the later phases, which are cut just below whole steps; 0: anywhere. fine: of
    a node's bound: a narrower range is not split.
    """
    ranges = (("ready", node.ranges.ready), ("rest", node.ranges.rest))
    least = max(fine * node.value, NARROWER * max(high - low for _, (low, high) in ranges))
    pairs: list[Pair] = []
    for name, (low, high) in ranges:
        if high - low > least:
            middle = float(np.sqrt(max(low, high * LEAST_MIDDLE) * high))
            whole = round(middle / step_s) * step_s * BELOW_STEP if name == "rest" and step_s > 0 else 0.0
            middle = whole if low < whole < high else middle
            below = replace(node.ranges, **{name: (low, middle)})
            above = replace(node.ranges, **{name: (middle, high)})
            pairs.append(node.halved(name, 0, middle, {"ranges": below}, {"ranges": above}))
    return pairs


def split_by_table(node: PhaseNode, worldwide: Bools, single: Bools) -> list[Pair]:
    """Split by whether a table spans the world: tables for which both options cost much, and nearly the same.

    A costly table with one option that is far cheaper keeps that option in the better half, whose bound does not rise.

    worldwide (G,): groups whose pieces span the world. single (C,): tables that are like no other; of equal tables,
    some may span the world and others not.
    """
    least = np.where(node.open, node.least, np.inf)
    spread = np.where(worldwide, least, np.inf).min(axis=1)
    placed = np.where(worldwide, np.inf, least).min(axis=1)
    both = np.isfinite(spread) & np.isfinite(placed) & single
    apart = np.abs(np.subtract(spread, placed, where=both, out=np.zeros(len(both))))
    cheaper = np.where(both, np.minimum(spread, placed), 0.0)
    weight = APART if len(single) > FEW_TABLES else 1
    pairs: list[Pair] = []
    for table in np.argsort(weight * apart - cheaper, kind="stable")[:MOST_TESTED].tolist():
        if cheaper[table] - apart[table] > FINE * node.value:
            one, other = node.open.copy(), node.open.copy()
            one[table, worldwide], other[table, ~worldwide] = False, False
            pairs.append(node.halved("table", table, 0.0, {"open": one}, {"open": other}))
    return pairs
