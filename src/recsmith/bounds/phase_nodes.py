"""Nodes of the search of phase_branching.py, and how they are split in two.

Legend: C different tables, G fusion groups.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.group_costs import GroupCosts
from recsmith.bounds.multipliers import Multipliers, PhaseRanges

FINE = 1e-3  # of a node's bound: what costs less is not split
MOST_TESTED = 2  # tables for which a split is tried in one node; trade-off: each costs an evaluation of two nodes
LEAST_MIDDLE = 1 / 6  # of the upper end of a range: the lower end counts as this much where its middle is taken


@dataclass(order=True)
class PhaseNode:
    """A part of the space: plans by the groups that they use, and by the seconds of their slowest ranks.

    value: seconds that no plan of the part can undercut. open (C, G): groups that each table may use. paid (G,): groups
    that the plan uses for certain. step: relative size of the next change of its multipliers. least (C, G): what each
    table costs at least in each group by its multipliers. settled: its multipliers were sought as long as the root's.
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


Pair = tuple[PhaseNode, PhaseNode]


def split_by_group(node: PhaseNode, costs: GroupCosts) -> list[Pair]:
    """The most expensive group that tables select without paying for it: closed to all, or paid for."""
    used = np.zeros(len(node.paid), dtype=bool)
    used[np.where(node.open, node.least, np.inf).argmin(axis=1)] = True
    cost = np.where(used & ~node.paid, costs.added(node.paid), 0.0)
    group = int(cost.argmax())
    if cost[group] <= FINE * node.value:
        return []
    paid, open_ = node.paid.copy(), node.open.copy()
    paid[group], open_[:, group] = True, False
    return [(replace(node, open=open_), replace(node, paid=paid))]


def split_by_range(node: PhaseNode) -> list[Pair]:
    """The lower or the upper part of a range: of the first phase, or of the rest."""
    pairs: list[Pair] = []
    for name, (low, high) in (("ready", node.ranges.ready), ("rest", node.ranges.rest)):
        if high - low > FINE * node.value:
            middle = float(np.sqrt(max(low, high * LEAST_MIDDLE) * high))
            below = replace(node.ranges, **{name: (low, middle)})
            above = replace(node.ranges, **{name: (middle, high)})
            pairs.append((replace(node, ranges=below), replace(node, ranges=above)))
    return pairs


def split_by_table(node: PhaseNode, worldwide: Bools, single: Bools) -> list[Pair]:
    """A table that spans the world, or not: those tables first for which both cost much, and much the same.

    worldwide (G,): groups whose pieces span the world. single (C,): tables that no other is like; of those that are
    alike some may span it and others not.
    """
    least = np.where(node.open, node.least, np.inf)
    spread = np.where(worldwide, least, np.inf).min(axis=1)
    placed = np.where(worldwide, np.inf, least).min(axis=1)
    both = np.isfinite(spread) & np.isfinite(placed) & single
    apart = np.abs(np.subtract(spread, placed, where=both, out=np.zeros(len(both))))
    tied = np.where(both, np.minimum(spread, placed) - apart, 0.0)
    pairs: list[Pair] = []
    for table in np.argsort(-tied, kind="stable")[:MOST_TESTED].tolist():
        if tied[table] > FINE * node.value:
            one, other = node.open.copy(), node.open.copy()
            one[table, worldwide], other[table, ~worldwide] = False, False
            pairs.append((replace(node, open=one), replace(node, open=other)))
    return pairs
