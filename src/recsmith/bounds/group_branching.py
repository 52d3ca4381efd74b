"""A bound for problems of any size, by branch and bound over the fusion groups that a plan uses.

A node of the search says which groups a plan may use, which of them it uses for certain, and how many seconds pieces
that span the world leave every rank. Its bound is the least step time with these groups (least_limits.py) plus what the
groups that are certain cost. Each node is split by what its tables' cheapest options break most. The least bound of all
open nodes holds for every plan, whenever the search stops (docs/bounds.md).

Legend: T tables, W ranks, G fusion groups, O options.
"""

import heapq
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from recsmith._types import Bools
from recsmith.bounds.dominated_groups import groups_dominated_by_type
from recsmith.bounds.group_costs import GroupCosts
from recsmith.bounds.least_limits import TIE_PENALTY, LeastLimits
from recsmith.bounds.selection import LinearBound, SelectionLimits
from recsmith.bounds.table_totals import Least
from recsmith.costs.protocol import Evaluator

MOST_NODES = 64  # that are solved, and fewer for large problems: trade-off between the bound and the time it takes
OPTIONS_PRICED = 400_000  # nodes times options of a problem, at most (but one node always): 10 nodes at 40,000 options
CLOSE = 1e-4  # of a node's bound; branching ends where a split can raise it by no more than this
MOST_PROMISING = 12  # limits that searches are offered; each may become a draft of a plan


@dataclass(frozen=True, slots=True)
class GroupBranch:
    """A part of the space: plans that use only groups of `allowed` (G,) and all groups of `paid` (G,).

    What spans the world leaves every rank between `low` and `high` seconds of the limit. value: seconds that no plan of
    the part can undercut, as far as is known before it is solved.
    """

    allowed: Bools
    paid: Bools
    low: float = 0.0
    high: float = inf
    value: float = 0.0


@dataclass(order=True, frozen=True, slots=True)
class _GroupNode:
    """A branch that has been solved: its bound, and which options its tables select under which limits."""

    value: float
    number: int
    branch: GroupBranch = field(compare=False)
    limits: SelectionLimits = field(compare=False)
    least: Least = field(compare=False)

    @property
    def used(self) -> Bools:
        """Groups (G,) of the selected options."""
        used = np.zeros(len(self.branch.allowed), dtype=bool)
        used[self.least.group] = True
        return used

    @property
    def room(self) -> float:
        """Seconds that selected options that span the world leave every rank; at least what the branch promises."""
        return max(self.branch.low, self.limits.limit - float(self.least.everywhere.sum()))

    @property
    def largest(self) -> float:
        """Seconds of the largest selected piece that does not span the world."""
        return float(self.least.largest.max())


class GroupBranching:
    """Best-first branch and bound over the groups of one problem."""

    def __init__(self, evaluator: Evaluator, linear: LinearBound) -> None:
        self.evaluator = evaluator
        self.least_limits = LeastLimits(evaluator, linear)
        self.costs = GroupCosts(evaluator, linear.opening)
        self.budget = max(1, min(MOST_NODES, OPTIONS_PRICED // len(evaluator.problem.options.mode)))
        self.made = 0

    def solve(self) -> tuple[float | None, list[SelectionLimits]]:
        """(seconds that no plan can undercut, limits under which good plans are to be sought, the best first).

        None where no plan exists: every table alone, or all together, leave no choice that fits the devices.
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
        return open_[0].value, self._promising(seen)

    def _promising(self, seen: list[_GroupNode]) -> list[SelectionLimits]:
        """The limits of the nodes whose selections would cost least, one node for each set of groups and room."""
        promising: dict[tuple[bytes, float, float], SelectionLimits] = {}
        for node in sorted(seen, key=lambda node: (self._estimate(node), node.number)):
            limits = replace(node.limits, groups=node.used, world_penalty=node.limits.world_penalty + TIE_PENALTY)
            promising.setdefault((node.used.tobytes(), limits.local, limits.world_penalty), limits)
        return list(promising.values())[:MOST_PROMISING]

    def _children(self, node: _GroupNode) -> list[GroupBranch]:
        """The node split by what its selection breaks most: groups that are not paid, or room that is not there."""
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
        """What the node's selection would cost with all its groups paid, and with room for its largest piece."""
        paid, missing = node.branch.paid, max(0.0, node.largest - node.room)
        return node.value - self.costs.certain(paid) + self.costs.certain(paid | node.used) + missing

    def _solved(self, branch: GroupBranch) -> _GroupNode | None:
        """The branch with its bound; None where tables have no option left."""
        self.made += 1
        limits = self.least_limits.of_groups(branch.allowed, branch.low, branch.high)
        if limits is None:
            return None
        value = max(branch.value, limits.limit + self.costs.certain(branch.paid))
        return _GroupNode(value, self.made, branch, limits, self.least_limits.selected(limits))
